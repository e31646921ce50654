"""From what a user writes to a device."""

from __future__ import annotations

from importlib.metadata import entry_points

import torch

from composer.devices.base import Device
from composer.devices.cpu import DeviceCPU
from composer.devices.gpu import DeviceGPU
from composer.devices.mps import DeviceMPS
from composer.utils.suggestions import did_you_mean

__all__ = ["get_device"]

_BUILT_IN: dict[str, type[Device]] = {"cpu": DeviceCPU, "gpu": DeviceGPU, "mps": DeviceMPS}
_ALIASES = {"cuda": "gpu"}
_PLUGIN_ONLY = ("hpu", "neuron", "tpu", "xla")


def get_device(device: str | Device | None = None) -> Device:
    """Turn a device, its name or nothing into a device.

    Args:
        device: A device is returned as it is. A name is ``cpu``, ``gpu`` (or ``cuda``), ``mps`` or
            that of an installed plugin. ``None`` takes a GPU if there is one, else an Apple GPU,
            else the CPU.

    Returns:
        The device.

    Raises:
        ValueError: If the name is unknown, or the machine lacks the device.
        TypeError: If it is neither a device nor a name.

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
    if name in _BUILT_IN:
        return _BUILT_IN[name]()
    plugins = {entry.name: entry for entry in entry_points(group="composer.devices")}
    if name in plugins:
        loaded = plugins[name].load()()
        if not isinstance(loaded, Device):
            raise TypeError(
                f"The plugin for device={device!r}, {plugins[name].value}, made a "
                f"{type(loaded).__name__} and not a Device."
            )
        return loaded
    accepted = sorted({*_BUILT_IN, *plugins})
    if name in _PLUGIN_ONLY:
        raise ValueError(
            f"device={device!r} is not built in. A package can add it as a plugin: a subclass of "
            f'composer.devices.Device under the entry point group "composer.devices" with the name '
            f"{name!r}. Accepted here are: {', '.join(accepted)}."
        )
    raise ValueError(
        f"device={device!r} is unknown; accepted are: {', '.join(accepted)}."
        f"{did_you_mean(name, [*accepted, *_ALIASES])}"
    )
