"""`zoo pull`: an agent from the Hugging Face Hub, a folder or a zip, taken as data."""

from __future__ import annotations

import shlex

from zoo.agents.card import score, steps
from zoo.agents.trust import refuse_foreign_code
from zoo.config.schema import PullSettings
from zoo.config.user_files import shown
from zoo.core.printing import one_line, show
from zoo.errors import ZooError
from zoo.interop.hub import pull


def run(settings: PullSettings) -> None:
    """Pull the agent that the config names, and print a note if it needs ``trust=true``."""
    if settings.source is None:
        raise ZooError("from where? from=USER/NAME (Hugging Face Hub), from=FOLDER or from=FILE.zip")
    path, files = pull(settings.source, settings.to, revision=settings.revision)
    place = one_line(shown(path))
    env = (files.config.get("env") or {}).get("id")
    name = f"{one_line(files.config['algo']['name'], 40)} on {one_line(env, 80)}"
    show(f"agent  {place}")
    show(f"       {name}, trained for {steps(files.card)} steps, return {score(files.card)}")
    watch = f"watch  zoo enjoy {shlex.quote(f'agent={place}')}"
    try:
        refuse_foreign_code(files.config, place)
    except ZooError as refusal:
        show(f"note   {refusal}")
        watch += " trust=true   # once you know whose it is"
    show(watch)
