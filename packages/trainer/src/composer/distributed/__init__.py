"""Training one model on many ranks: wrapping it, and when its gradients are synchronised."""

from composer.distributed.ddp import prepare_ddp_module
from composer.distributed.flat import share_buffers
from composer.distributed.sync import DDPSyncStrategy, GradientSync, ddp_sync_context

__all__ = [
    "DDPSyncStrategy",
    "GradientSync",
    "ddp_sync_context",
    "prepare_ddp_module",
    "share_buffers",
]
