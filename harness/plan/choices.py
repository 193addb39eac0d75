"""The command as conf/plan/ has it: its groups, their choices and what they mean, from the files themselves."""

from harness.composing import Command, Group
from harness.plan.options import HardwareOptions, ModelOptions, PlanOptions, PolicyOptions

PLAN = Command(
    "plan",
    "a plan",
    PlanOptions,
    {
        "model": Group("which model", ModelOptions),
        "hardware": Group("on what", HardwareOptions),
        "policy": Group("how much of the past stays in the KV cache", PolicyOptions),
    },
    {
        "model.config.": "this model's config.json has no such key. Write your own: model=config model.path=FILE."
    },
)
