"""Check that the network plugin which NCCL is told to use is here."""

from __future__ import annotations

from pathlib import PurePath

from envdoctor.check import check
from envdoctor.checks.nccl import effective_settings
from envdoctor.facts import NcclFilesFact, NcclPluginsFact, VariablesFact
from envdoctor.verdict import Evidence, Ok, Problem, Remedy, Severity, Verdict

_PLUGIN, _NET = "NCCL_NET_PLUGIN", "NCCL_NET"
_BUILT_IN = frozenset({"ib", "socket"})
_NO_PLUGIN = frozenset({"none", "static_plugin"})


@check()
def nccl_plugin_not_found(
    variables: VariablesFact, files: NcclFilesFact, plugins: NcclPluginsFact
) -> Verdict:
    """NCCL is told to use a network plugin that is not here.

    ## What it checks
    NCCL_NET_PLUGIN (a path, a file's name, or what follows `libnccl-net-`) and NCCL_NET, against
    the plugins in the loader's folders.

    ## Why it matters
    Without its plugin NCCL goes on through TCP sockets, many times slower. If NCCL_NET demands
    the plugin's network, every distributed run stops with "network not found".

    ## Remedy
    Unset the variables, or put the plugin's folder on LD_LIBRARY_PATH; all nodes need the same.

    ## Source
    NCCL user guide, NCCL_NET and NCCL_NET_PLUGIN.
    """
    settings = {item.name: item for item in effective_settings(variables, files, (_PLUGIN, _NET))}
    plugin, net = settings.get(_PLUGIN), settings.get(_NET)
    names = [item.strip() for item in plugin.value.split(",")] if plugin else []
    names = [name for name in names if name and name.lower() not in _NO_PLUGIN]
    demands = net is not None and net.value.lower() not in _BUILT_IN
    is_here = any(_is_here(name, plugins) for name in names) if names else bool(plugins.paths)
    if is_here or not (names or demands):
        return Ok(", ".join(plugins.paths) or "no network plugin is asked for")
    setting = plugin if plugin and names else net
    if setting is None:
        return Ok("no network plugin is asked for")
    where = f" in {setting.file}" if setting.file else ""
    return Problem(
        culprit=f"{setting.name}{where}",
        severity=Severity.ERROR if demands else Severity.WARNING,
        message=f"{setting.name}={setting.value}{where}: no such network plugin is where the "
        f"loader looks ({', '.join(plugins.paths) or 'none is'})",
        evidence=(
            Evidence(
                subject=setting.name,
                expected="a libnccl-net*.so on the loader's path",
                found=setting.value,
            ),
        ),
        remedy=Remedy(
            kind="config-change" if setting.file else "unset-env",
            text="Unset it, or put the plugin's folder on LD_LIBRARY_PATH; all nodes need the same "
            "plugin.",
            commands=() if setting.file else (f"unset {setting.name}",),
        ),
    )


def _is_here(name: str, plugins: NcclPluginsFact) -> bool:
    if "/" in name:
        return name in plugins.paths
    files = {PurePath(path).name for path in plugins.paths}
    return bool(files & {name, f"libnccl-net-{name}.so", f"lib{name}.so"})
