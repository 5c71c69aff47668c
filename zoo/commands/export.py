"""`zoo export`: an agent's deterministic policy as a file that runs without Zoo."""

from __future__ import annotations

from pathlib import Path

from zoo.agents.agent_folder import read_agent
from zoo.algorithms.registry import algorithm_class
from zoo.config.schema import ExportSettings, preset_or_name
from zoo.config.user_files import shown
from zoo.core.printing import one_line, show
from zoo.envs.registry import folder_name
from zoo.errors import ZooError
from zoo.experiment.open_agent import agent_path
from zoo.interop.export import export_agent


def run(settings: ExportSettings) -> None:
    """Export the agent that the config names."""
    path = agent_path(settings)
    origin = one_line(shown(path))
    # No environment is made, so what it names is never followed.
    files = read_agent(path, trust=settings.trust, own_env=True)
    agent = algorithm_class(files.config["algo"]["name"]).from_files(files, device="cpu", compile=False)
    name = preset_or_name(files.config["algo"])
    env = one_line((files.config.get("env") or {}).get("id", "an environment of its own"))
    out = Path(settings.out or Path("exported", f"{name}-{folder_name(env)}")).expanduser()
    title, opset = f"{name} on {env}", settings.opset
    formats = ["onnx", "torch_export"] if settings.format == "both" else [settings.format]
    try:
        differences = export_agent(agent, out, formats=formats, title=title, opset=opset)
    except ZooError as error:
        raise ZooError(f"can't export {origin}: {error}") from error
    show(f"agent   {origin}")
    for file, difference in differences.items():
        place = one_line(shown(out / file))
        show(f"wrote   {place}, differs from the agent by {difference:.1e} at most")
    show(f"use it  {one_line(shown(out / 'README.md'))}")
