"""The simulator: clusters of the product's own nodes, on a heap of events, in virtual time.

These are the public names. Durations are written with units: ``10 * s``, ``5 * ms``.
"""

from __future__ import annotations

from ringpop_sim.builder import Sim as Sim
from ringpop_sim.checks import Broken as Broken
from ringpop_sim.checks import Check as Check
from ringpop_sim.errors import PlanError as PlanError
from ringpop_sim.plans.plan import Clock as Clock
from ringpop_sim.plans.plan import Crash as Crash
from ringpop_sim.plans.plan import Cut as Cut
from ringpop_sim.plans.plan import Delay as Delay
from ringpop_sim.plans.plan import Discovery as Discovery
from ringpop_sim.plans.plan import Impair as Impair
from ringpop_sim.plans.plan import Leave as Leave
from ringpop_sim.plans.plan import Lie as Lie
from ringpop_sim.plans.plan import Link as Link
from ringpop_sim.plans.plan import Operation as Operation
from ringpop_sim.plans.plan import Pause as Pause
from ringpop_sim.plans.plan import Plan as Plan
from ringpop_sim.plans.plan import Rumour as Rumour
from ringpop_sim.plans.plan import Slow as Slow
from ringpop_sim.plans.plan import Start as Start
from ringpop_sim.plans.plan import Stop as Stop
from ringpop_sim.plans.plan import Takeover as Takeover
from ringpop_sim.plans.plan import Traffic as Traffic
from ringpop_sim.plans.plan import Twin as Twin
from ringpop_sim.plans.plan import exponential as exponential
from ringpop_sim.plans.plan import fixed as fixed
from ringpop_sim.plans.plan import long_tail as long_tail
from ringpop_sim.plans.plan import uniform as uniform
from ringpop_sim.plans.planfile import parse_plan as parse_plan
from ringpop_sim.plans.planfile import plan_text as plan_text
from ringpop_sim.plans.planfile import read_plan as read_plan
from ringpop_sim.runs.cases import Case as Case
from ringpop_sim.runs.cases import read_case as read_case
from ringpop_sim.runs.cases import write_case as write_case
from ringpop_sim.runs.random_plans import random_plan as random_plan
from ringpop_sim.runs.run import Result as Result
from ringpop_sim.runs.run import Run as Run
from ringpop_sim.runs.run import run as run  # the function; the module stays in `sys.modules`
from ringpop_sim.units import hours as hours
from ringpop_sim.units import minutes as minutes
from ringpop_sim.units import ms as ms
from ringpop_sim.units import s as s
from ringpop_sim.units import us as us
