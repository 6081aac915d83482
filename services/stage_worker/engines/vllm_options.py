"""What the mesh file may set of a vLLM pool."""

from typing import Any

import msgspec

from services.stage_worker.engines.support.options import Count, Positive
from stagemesh.control import TAGS, ControlKind, ControlSupport

__all__ = ["Options"]


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the mesh file may set under `options`; unset means vLLM's own default."""

    max_model_len: Count | None = None
    max_num_seqs: Count = 64
    dtype: str = "auto"
    enforce_eager: bool = False
    gpu_memory_utilization: Positive | None = None
    tensor_parallel_size: Count | None = None
    enable_prefix_caching: bool | None = None
    enable_lora: bool | None = None
    """Left out where the platform cannot keep adapters apart: then they are refused, typed."""
    max_loras: Count | None = None
    max_lora_rank: Count | None = None
    enable_sleep_mode: bool | None = None
    """Left out where the platform cannot: then `Sleep` is refused, typed."""
    profile_dir: str | None = None
    """Where `StartProfile` writes to; it is refused without one."""
    collective_calls: list[str] = []
    """The methods of vLLM's workers that `CollectiveCall` may use."""
    step_level: bool = True
    """False consumes the public per-request generators instead of whole engine steps."""

    def control(self, *, can_sleep: bool, can_adapt: bool) -> ControlSupport:
        """Say which control calls can be carried out on a platform."""
        kinds = {ControlKind.KEEP, ControlKind.RESET_CACHE}
        if self.enable_lora and can_adapt:
            kinds.add(ControlKind.ADAPTERS)
        if self.profile_dir:
            kinds.add(ControlKind.PROFILE)
        sleeps = bool(self.enable_sleep_mode) and can_sleep
        if sleeps:
            kinds.add(ControlKind.SLEEP)
        return ControlSupport(
            kinds=frozenset(kinds),
            sleep_tags=TAGS if sleeps else frozenset(),
            collective_calls=frozenset(self.collective_calls),
        )

    def engine_args(self, *, can_sleep: bool, can_adapt: bool) -> dict[str, Any]:
        """Give what vLLM itself is told; what is unset is left to its own defaults."""
        ours = {"collective_calls", "profile_dir", "step_level"}
        given = msgspec.structs.asdict(self)
        args = {k: v for k, v in given.items() if v is not None and k not in ours}
        if self.profile_dir:
            args["profiler_config"] = {"profiler": "torch", "torch_profiler_dir": self.profile_dir}
        if not can_sleep:
            args.pop("enable_sleep_mode", None)
        if not can_adapt:
            args.pop("enable_lora", None)
        return args
