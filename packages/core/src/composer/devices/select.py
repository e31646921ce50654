"""From what a user writes to a device."""

from __future__ import annotations

import torch

from composer.devices.base import Device
from composer.devices.cpu import DeviceCPU
from composer.devices.gpu import DeviceGPU
from composer.devices.mps import DeviceMPS
from composer.utils import plugins

__all__ = ["get_device"]

_ALIASES = {"cuda": "gpu"}
_PLUGIN_ONLY = ("hpu", "neuron", "tpu", "xla")


def get_device(device: str | Device | None = None) -> Device:
    """Turn a device, its name or nothing into a device.

    Args:
        device: A device is returned as it is. A name is ``cpu``, ``gpu`` (or ``cuda``), ``mps`` or
            that of an installed plugin, spelled ``distribution:name`` where two have one name.
            ``None`` takes a GPU if there is one, else an Apple GPU, else the CPU.

    Returns:
        The device.

    Raises:
        ValueError: If the name is unknown or not unique, or the machine lacks the device.
        TypeError: If it is neither a device nor a name, or a plugin makes something else.
        ImportError: If a plugin cannot be loaded.

    Example:
        >>> get_device("cpu").name
        'cpu'
    """
    if isinstance(device, Device):
        return device
    if device is None:
        if torch.cuda.is_available():
            return DeviceGPU()
        if torch.backends.mps.is_available():
            return DeviceMPS()
        return DeviceCPU()
    if not isinstance(device, str):
        raise TypeError(
            f"device={device!r} is a {type(device).__name__}; accepted are a Device, a name, or "
            "None."
        )
    name = _ALIASES.get(device.lower(), device.lower())
    try:
        found: Device = plugins.resolve("composer.devices", name)
    except plugins.PluginNotFoundError as error:
        if name not in _PLUGIN_ONLY:
            raise
        raise ValueError(
            f"device={device!r} is not built in. A package can add it as a plugin: a subclass of "
            f'composer.devices.Device under the entry point group "composer.devices" with the name '
            f"{name!r}. Installed are: {', '.join(plugins.names('composer.devices'))}."
        ) from error
    return found
