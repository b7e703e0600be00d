"""The frozen models every spec has: Spec, EnvSpec, MetaSpec, AgentSpec, schedules, optimisers, losses.

Sections of `agent` stay mappings here; the component named in them parses its own (see slm_lab.agent).
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, Field, field_validator

from slm_lab.spec.parse import Float, Int, Model


class Schedule(Model):
    """A value as a pure function of the frame."""

    name: Literal["no_decay", "linear_decay", "rate_decay", "periodic_decay"] = Field(
        "no_decay", description="shape of the curve"
    )
    start_val: Float = Field(description="value until start_step")
    end_val: Float | None = Field(None, description="value from end_step on; unset keeps start_val")
    start_step: Int = Field(0, ge=0, description="frame where the change starts")
    end_step: Int = Field(0, ge=0, description="frame where it ends")

    def __call__(self, frame: int) -> float:
        start, end = self.start_val, self.start_val if self.end_val is None else self.end_val
        if self.name == "no_decay" or frame < self.start_step:
            return start
        if frame >= self.end_step:
            return end
        done = (frame - self.start_step) / (self.end_step - self.start_step)
        if self.name == "linear_decay":
            return start + done * (end - start)
        if self.name == "rate_decay":  # 10 % a twentieth of the way, held at the end value
            value = float(start * 0.9 ** (20 * done))
            return max(value, end) if end <= start else min(value, end)
        return end + 0.5 * (start - end) * (1 + math.cos(60 * done) * (1 - done))

    @property
    def final(self) -> float:
        """The value after the schedule has run: what evaluation uses."""
        return self(max(self.end_step, self.start_step))


class NamedSpec(Model):
    """A torch class by name; every other key is passed to its constructor."""

    model_config = ConfigDict(frozen=True, extra="allow", protected_namespaces=())

    name: str = Field(description="class name in torch")

    @property
    def kwargs(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class OptimSpec(NamedSpec):
    """Any torch.optim class, e.g. {name: Adam, lr: 3e-4, eps: 1e-5}."""

    name: str = Field("Adam", description="class name in torch.optim; GlobalAdam and GlobalRMSprop are their plain kin")
    lr: Float | None = Field(None, ge=0, description="learning rate; unset takes the class's own default")


class LossSpec(NamedSpec):
    """Any torch.nn loss, e.g. {name: SmoothL1Loss}."""

    name: str = Field("MSELoss", description="class name in torch.nn")


class LrSpec(NamedSpec):
    """LinearToZero {frame}, LinearToMin {frame, min_factor}, or a torch.optim.lr_scheduler class."""

    name: str = Field(description="LinearToZero, LinearToMin, or a class name in torch.optim.lr_scheduler")


class EnvSpec(Model):
    """What to train on and for how long. Keys not listed here go to the env's constructor."""

    model_config = ConfigDict(frozen=True, extra="allow", protected_namespaces=())
    inert: ClassVar = {
        "image_downsize": "Atari frames are always 84x84",
        "device": "JAX steps its envs on a GPU where it has one",
    }

    name: str = Field(
        min_length=1, description="Gymnasium id, `module:Id-v0`, or `module:function` that returns a gymnasium.Env"
    )
    num_envs: Int = Field(1, ge=1, description="environments stepped together; batch = horizon * num_envs")
    max_frame: Int = Field(ge=1, description="training budget in frames (env transitions over all envs)")
    max_t: Int | None = Field(
        None, ge=1, description="time limit of an episode in steps, where smaller than the env's own"
    )
    normalize_obs: bool = Field(False, description="running mean and variance over observations, kept with the agent")
    normalize_reward: bool = Field(
        False, description="divide rewards by the running deviation of the discounted return"
    )
    clip_obs: Float | None = Field(
        None, gt=0, description="clip normalised observations to +-value (10 with normalize_obs)"
    )
    clip_reward: Float | tuple[Float, Float] | None = Field(
        None, description="clip learning rewards to +-value or [low, high] (10 with normalize_reward)"
    )
    reward_scale: Float | Literal["sign"] = Field(
        1.0, description="factor on learning rewards, or `sign`; returns stay raw"
    )
    vectorization: Literal["auto", "sync", "async"] = Field(
        "auto", description="step envs in turn or in worker processes; auto measures. Both give the same numbers"
    )
    worker_timeout: Float = Field(
        120.0, gt=0, description="async: seconds an env worker may take for one answer before it is replaced"
    )
    worker_restarts: Int = Field(
        3, ge=0, description="async: failed env workers replaced in one sitting; the next failure ends the session"
    )
    backend: Literal["auto", "gymnasium", "envpool", "jax"] = Field(
        "auto",
        description="who steps the env: auto is EnvPool for playground/ (JAX where it has a GPU), else Gymnasium or "
        "ALE. EnvPool cannot save an open episode: a resumed run starts new ones",
    )

    def in_process(self, num_envs: int) -> EnvSpec:
        """The same env, so many times, stepped in the process that asks."""
        return self.model_copy(update={"num_envs": num_envs, "vectorization": "sync"})

    @property
    def kwargs(self) -> dict[str, Any]:
        """Keys for the env's own constructor."""
        return dict(self.model_extra or {})

    @property
    def obs_clip(self) -> float | None:
        return 10.0 if self.clip_obs is None and self.normalize_obs else self.clip_obs

    @property
    def reward_bounds(self) -> tuple[float, float] | None:
        clip = 10.0 if self.clip_reward is None and self.normalize_reward else self.clip_reward
        return clip if isinstance(clip, tuple) or clip is None else (-clip, clip)

    @field_validator("clip_reward")
    @classmethod
    def _ordered(cls, value: Any) -> Any:
        low, high = value if isinstance(value, tuple) else (-value, value) if value is not None else (-1, 1)
        if not low < high:
            raise ValueError("a positive number or [low, high] with low < high")
        return value


class MetaSpec(Model):
    """How a run is repeated, logged and recorded."""

    inert: ClassVar = dict.fromkeys(
        (
            "cuda_offset",
            "experiment",
            "resume",
            "predir",
            "prepath",
            "graph_prepath",
            "info_prepath",
            "log_prepath",
            "model_prepath",
        ),
        "set at run time",
    ) | {"num_gpus": "nothing reads it"}

    max_session: Int = Field(
        ge=1, description="independent repetitions, each with its own seeds; Hogwild workers when distributed"
    )
    max_trial: Int | None = Field(None, ge=1, description="number of trials of a search")
    distributed: Literal[False, "synced", "shared"] = Field(
        False, description="Hogwild training over max_session workers"
    )
    log_frequency: Int = Field(10_000, ge=1, description="frames between rows of the table")
    eval_frequency: Int = Field(10_000, ge=1, description="frames between evaluations, with rigorous_eval")
    rigorous_eval: Int = Field(0, ge=0, description="evaluation episodes at each eval_frequency; 0 for none")
    eval_deterministic: bool = Field(True, description="evaluate the most likely action instead of a sample")
    compile: Literal["auto"] | bool = Field(
        "auto", description="run gradient steps and acting as compiled functions; auto: where that pays for itself"
    )
    random_seed: Int = Field(0, ge=0, description="base of every random stream; the same seed gives the same numbers")
    search_resources: dict[str, Float] | None = Field(None, description="cpu and gpu a search trial reserves")
    search_scheduler: dict[str, Any] | None = Field(
        None, description="ASHA's grace_period and reduction_factor; unset for none"
    )
    overrides: list[str] = Field(default_factory=list, description="-s options that were applied, recorded")
    trial: Int | None = Field(None, description="recorded: trial index")
    session: Int | None = Field(None, description="recorded: session index")
    session_seed: Int | None = Field(None, description="recorded: the session's own seed")
    experiment_ts: str | None = Field(None, description="recorded: when the run started")
    git_sha: str | None = Field(None, description="recorded: commit of the code")
    record: dict[str, Any] = Field(
        default_factory=dict, description="recorded: threads, vectorization, versions, machine"
    )

    @field_validator("rigorous_eval", mode="before")
    @classmethod
    def _counted(cls, value: Any) -> Any:
        return int(value) if isinstance(value, bool) else 0 if value is None else value


class AgentSpec(Model):
    """Which algorithm, memory and net, each with its own keys."""

    name: str = Field("", description="free label")
    algorithm: dict[str, Any] = Field(description="`name` and the keys of that algorithm")
    memory: dict[str, Any] = Field(default_factory=dict, description="`name` and the keys of that memory")
    net: dict[str, Any] = Field(default_factory=dict, description="`type` and the keys of that net")
    critic_net: dict[str, Any] | None = Field(None, description="net of the critics, where the algorithm takes one")


class Spec(Model):
    """One experiment: everything that decides its numbers."""

    inert: ClassVar = {"body": "a key of SLM-Lab 4"}

    name: str = Field(pattern=r"^[^/\\]*[^/\\.][^/\\]*$", description="spec name, and the start of its folder's name")
    agent: AgentSpec = Field(description="the learner")
    env: EnvSpec = Field(description="the task")
    meta: MetaSpec = Field(description="the run")
    search: dict[str, Any] = Field(default_factory=dict, description="search space, mode `search` only")

    @property
    def workers(self) -> int:
        """Sessions that train one agent together: all of them when distributed."""
        return self.meta.max_session if self.meta.distributed else 1

    @property
    def session_frames(self) -> int:
        """Frames that one session spends: workers share the budget."""
        return -(-self.env.max_frame // self.workers)
