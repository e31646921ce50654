"""Devices: where modules and batches live and how their ranks talk."""

from __future__ import annotations

from composer.devices.base import Device
from composer.devices.cpu import DeviceCPU
from composer.devices.gpu import DeviceGPU
from composer.devices.mps import DeviceMPS
from composer.devices.select import get_device

__all__ = ["Device", "DeviceCPU", "DeviceGPU", "DeviceMPS", "get_device"]
