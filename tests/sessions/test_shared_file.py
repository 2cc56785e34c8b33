"""Shared files: what they hold, what they never hold, and that nobody can break us with one."""

from __future__ import annotations

import gzip
import json
import os
import random
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from swarmtui.analysis.compare.sessions import compare
from swarmtui.analysis.limits.slo import parse_slo
from swarmtui.model.base import BadInput
from swarmtui.model.endpoint import Endpoint
from swarmtui.model.findings import Capacity
from swarmtui.model.hosts import Host
from swarmtui.model.journal import RequestEntry, ServerEntry, TelemetryEntry
from swarmtui.model.plan import Plan
from swarmtui.model.session import ClientInfo, Event, Summary
from swarmtui.model.session_tags import Series
from swarmtui.model.speed_of_light import ModelShape
from swarmtui.model.telemetry import DiscoveredServer, HostLoad, ProgramTimes, Telemetry
from swarmtui.report.comparison import comparison_blocks
from swarmtui.report.leaderboards import LEADERBOARDS
from swarmtui.report.session import session_blocks
from swarmtui.report.sharing import FORMATS, prepare, render_files, shared_blocks
from swarmtui.report.text import paint
from swarmtui.sessions.index import list_sessions
from swarmtui.sessions.private import without_private
from swarmtui.sessions.shared_file import import_shared, read_shared, shared_bytes
from swarmtui.sessions.store import (
    earlier_sessions,
    load_session,
    read_session,
    read_summary,
    remove_session,
    summarise,
)
from tests.analysis.level_builders import level, summary
from tests.sessions.session_builders import T0, full_session, record, write_session

RECORDED = Path(__file__).parent / "recorded"
ID = "20261115-014455-3f9a"
TEXT_FORMATS = tuple(form for form in FORMATS if form.suffix != ".png")

# Everything that a session may know and that is nobody's business; each is found by its own word.
SECRETS = (
    "zqlabel", "zqnote", "zqtag", "zqhost", "zqlan", "zqheader", "zqcafile", "zquser", "zqprompt",
    "zqanswer", "zqseries", "zqpath", "zqkey", "zqlora", "zqevent", "zqkernel", "zqworker", "zqaddress",
    "zqmodeldir", "zqproblem", "zqprogram", "zqerror", "zqtype", "zqprevious", "zqtemplate", "zqbusy",
    "zqworkload",
)  # fmt: skip


def private_session(**fields: Any) -> list[Any]:
    """A session with something private wherever text can be."""
    server_flags = (
        "zqprogram serve --max-num-seqs 4 --api-key sk-zqkey1234567 --lora-modules zqlora=/zqpath/lora "
        "--host zqlan.example --chat-template zqtemplate HF_TOKEN=hf_zqkey1234567"
    )
    entries = full_session(
        label="zqlabel for my boss", note="zqnote: call me", tags={"customer": "zqtag"}, server_flags=server_flags,
        endpoints=(
            Endpoint(
                url="http://zqlan.example:8000/zqpath", model="/home/zquser/zqmodeldir/qwen3.gguf",
                engine="vLLM", ca_file="/zqcafile.pem", header_names=("X-zqheader",),
            ),
        ),
        workload_spec={"kind": "prompts", "prompts": ["zqprompt"]}, workload_file="/home/zquser/zqworkload.toml",
        client=ClientInfo(version="0.1.0", python="3.11.7", host="zqhost", cores=2, kernel="6.8.0-zqkernel"),
        hosts=(Host(name="zqworker", address="zqaddress", machine="zqaddress", cores=4),),
        series=Series(kind="probe", name="http://zqseries"), previous="zqprevious",
        plan=Plan(slo="ttft=10s,share=40%"), **fields,
    )  # fmt: skip
    shape = ModelShape(
        architecture="qwen3", source="gguf", path="/home/zquser/zqmodeldir", quantisation="Q4_K_M", dense_bytes=1e9,
        dense_parameters=2e9,
    )  # fmt: skip
    server = DiscoveredServer(
        url="http://zqlan.example:8000", engine="vLLM", version="0.32.0",
        models=("/home/zquser/zqmodeldir/qwen3.gguf",), user="zquser", pid=77,
        gpus=("GPU-zqaddress",), shape=shape, problem="zqproblem at zqlan.example", slots=4,
        flags={"max-num-seqs": "4", "model": "/home/zquser/zqmodeldir", "api-key": "zqkey", "lora-modules": "zqlora"},
    )  # fmt: skip
    answers = [
        RequestEntry(
            record=record(
                700 + n,
                sent=2280,
                c=2,
                stage=2,
                type="zqtype",
                error="reset",
                text="zqanswer zqprompt",
                error_detail="zqerror",
            )
        )
        for n in range(3)
    ]
    events = [Event(t_ns=T0, name="left_out", detail="http://zqlan.example said zqevent")]
    server_entry = ServerEntry(endpoint=0, server=server)
    return [entries[0], server_entry, *entries[1:-1], *answers, *busy_host(), *events, entries[-1]]


def busy_host() -> list[TelemetryEntry]:
    """While the second level runs, client and server wait for another program all the time."""
    found = []
    for at_s in (2.0, 3.0):
        programs = ProgramTimes(
            t_ns=T0 + round(1e9 * at_s), cpus=2, others_s=at_s, by_name={"zqbusy a": at_s}, pids={"zqbusy a": 71}
        )
        host = HostLoad(
            t_ns=programs.t_ns,
            pressure_us=round(1e6 * at_s),
            waited_ns=round(1e9 * at_s),
            programs=programs,
        )
        found.append(TelemetryEntry(telemetry=Telemetry(t_ns=programs.t_ns, host=host)))
    return found


def test_a_program_that_made_the_host_busy_is_named_to_the_user_and_to_nobody_else(tmp_path: Path) -> None:
    write_session(tmp_path / ID, private_session())
    said, mine = "the host was busy with another program: zqbusy a (pid 71, 1.0 cores)", read_summary(tmp_path, ID)
    shared = without_private(mine).summary
    own, others = (" ".join(paint(session_blocks(one)).split()) for one in (mine, shared))
    assert said in own and any(said in flag.text for flag in mine.levels[1].flags)
    assert "the host was busy" in others and "busy with" not in others
    assert shared.levels[1].host is not None and shared.levels[1].host.others == pytest.approx(0.5)


def shared_texts(root: Path, which: str = ID) -> dict[str, str]:
    """Everything that `share` writes or prints, as text."""
    found = prepare(root, which)
    names = [f"x{form.suffix}" for form in TEXT_FORMATS]
    contents = {form.suffix: data for form, data in zip(TEXT_FORMATS, render_files(found, names), strict=True)}
    texts = {name: (gzip.decompress(data) if name.endswith("gz") else data).decode() for name, data in contents.items()}
    boards = {name: make(found.summary).content.decode() for name, make in LEADERBOARDS.items()}
    return texts | boards


@pytest.fixture(scope="module")
def recorded() -> Summary:
    return without_private(summarise(load_session(RECORDED, "last"))).summary


def test_nothing_private_is_shared(tmp_path: Path) -> None:
    write_session(tmp_path / ID, private_session())
    journal = (tmp_path / ID / "journal.jsonl").read_text()
    assert [word for word in SECRETS if word not in journal] == [], "a test of nothing"
    for name, text in shared_texts(tmp_path).items():
        assert [word for word in SECRETS if word in text.lower()] == [], name
        assert "--max-num-seqs 4" in text or '"max-num-seqs":"4"' in text, f"the flags that matter are in {name}"
        assert "/home" not in text and ("qwen3.gguf" in text or name == "localmaxxing"), name


def test_flags_that_are_not_shared_are_no_change(tmp_path: Path) -> None:
    write_session(tmp_path / ID, private_session())
    mine = read_summary(tmp_path, ID)
    pair = compare([without_private(mine, label="their box").summary, mine]).pairs[0]
    assert pair.flags == (), "the same server: what the file leaves out is not known, and did not change"
    changed = msgspec.structs.replace(mine.session, server_flags="zqprogram serve --max-num-seqs 8 --api-key sk-zq")
    pair = compare([without_private(mine).summary, msgspec.structs.replace(mine, session=changed)]).pairs[0]
    assert [str(flag) for flag in pair.flags] == ["--max-num-seqs 4 → 8"]


def test_what_is_shared_and_what_is_not_is_printed(tmp_path: Path) -> None:
    write_session(tmp_path / ID, private_session())
    found = prepare(tmp_path, ID, label="zqlabel as I like it", model="org/model")
    printed = paint(shared_blocks(found, "a.swarm.json.gz", (), ""))
    assert "zqlabel as I like it" in printed and "org/model" in printed and "--max-num-seqs 4" in printed
    left_out = printed.partition("Not in it: ")[2]
    for what in ("prompts and answers", "label, note", "paths", "keys", "--api-key", "--lora-modules"):
        assert what in left_out, what
    for form in TEXT_FORMATS:
        (content,) = render_files(found, [f"x{form.suffix}"])
        text = (gzip.decompress(content) if form.attached else content).decode()
        assert "zqlabel as I like it" in text and "org/model" in text and "qwen3.gguf" not in text


def test_name_of_the_host_is_not_repeated_by_a_sentence() -> None:
    """A sentence that quotes a name is masked, and a word that is a code of ours keeps its meaning."""
    client, plan = ClientInfo(version="0", python="3", host="done", cores=1), Plan(slo="ttft_p90=2s")
    told = summary([level(1, tps=100)], client=client, plan=plan)
    slo = str(parse_slo(plan.slo))
    capacity = Capacity(slo=slo, agents=4, low=4, high=5, next_c=6, alpha=0.1, visits=2, requests=9)
    told = msgspec.structs.replace(told, capacity=capacity, scaling=None)
    found = without_private(told).summary
    assert found.state == "done" and found.capacity == capacity


def test_shared_file_is_read_back_as_it_was_written(recorded: Summary, tmp_path: Path) -> None:
    path = tmp_path / "box.swarm.json.gz"
    path.write_bytes(shared_bytes(recorded))
    assert read_shared(path) == recorded == read_summary(tmp_path, str(path))
    assert shared_bytes(read_shared(path)) == path.read_bytes(), "sharing a shared file changes nothing"
    own = summarise(load_session(RECORDED, "last"))
    assert [one.out_tps_steady for one in recorded.levels] == [one.out_tps_steady for one in own.levels]
    assert recorded.gpus == own.gpus and recorded.answer and own.answer
    assert recorded.answer.headline == own.answer.headline


def changed(path: Path, summary: Summary, change: Callable[[dict[str, Any]], object]) -> Path:
    """Write a shared file whose JSON was changed."""
    document = json.loads(gzip.decompress(shared_bytes(summary)))
    change(document)
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    return path


def test_file_of_a_colleagues_version_is_read(recorded: Summary, tmp_path: Path) -> None:
    def newer(document: dict[str, Any]) -> None:
        document |= {"version": "9.9.9", "sent_by": "nobody"}
        document["summary"]["new"] = {"any": [1, 2]}
        document["summary"]["session"]["plan"]["load"]["new_key"] = "2x"
        for found in document["summary"]["levels"]:
            found["new_figure"] = 3.5
            del found["waterfall"]

    found = read_shared(changed(tmp_path / "a.swarm.json.gz", recorded, newer))
    assert [one.out_tps_steady for one in found.levels] == [one.out_tps_steady for one in recorded.levels]


def test_newer_schema_is_refused_in_one_line(recorded: Summary, tmp_path: Path) -> None:
    path = changed(tmp_path / "a.swarm.json.gz", recorded, lambda document: document.update(schema=2, summary={"x": 1}))
    with pytest.raises(BadInput) as refused:
        read_shared(path)
    assert str(refused.value) == f"{path}: has schema 2, but this version reads schema 1; update swarmtui"


def test_file_that_grows_when_unpacked_is_refused(tmp_path: Path) -> None:
    """Four gigabytes of zeros are 4 MB packed: it is not unpacked beyond what a session needs."""
    path = tmp_path / "bomb.swarm.json.gz"
    path.write_bytes(gzip.compress(bytes(64 << 20)) * 16)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(BadInput, match="larger than 32 MB when unpacked"):
        read_shared(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256 << 10  # KiB
    path.write_bytes(random.Random(1).randbytes(5 << 20))
    with pytest.raises(BadInput, match="larger than 4 MB"):
        read_shared(path)


def test_imported_file_is_listed_compared_and_removed(recorded: Summary, tmp_path: Path) -> None:
    path, root = tmp_path / "box.swarm.json.gz", tmp_path / "sessions"
    shared = msgspec.structs.replace(recorded, session=msgspec.structs.replace(recorded.session, label="their box"))
    path.write_bytes(shared_bytes(shared))
    write_session(root / ID, full_session())
    name = import_shared(path, root)
    assert name == import_shared(path, root) == recorded.session.id
    row = next(row for row in list_sessions(root) if row.id == name)
    assert row.shared and row.label == "their box" and row.state == "done" and row.best_out_tps and row.problem is None
    assert read_session(root, name).session.label == "their box"
    assert read_session(root, "last").session.id == ID, "the last session is one of ours"
    assert earlier_sessions(root, [read_session(root, ID).session]) == []
    with pytest.raises(BadInput, match="was shared: it has figures, but no single requests"):
        load_session(root, name)
    other = msgspec.structs.replace(shared, warmup_requests=99)
    path.write_bytes(shared_bytes(other))
    with pytest.raises(BadInput, match=r"another file of session .* was imported before"):
        import_shared(path, root)
    remove_session(root, name)
    assert [row.id for row in list_sessions(root)] == [ID]


def test_file_of_an_own_session_is_that_session(tmp_path: Path) -> None:
    write_session(tmp_path / ID, full_session())
    path = tmp_path / "own.swarm.json.gz"
    path.write_bytes(shared_bytes(prepare(tmp_path, ID).summary))
    assert import_shared(path, tmp_path) == ID
    assert (tmp_path / ID / "journal.jsonl").exists() and not list((tmp_path / ID).glob("shared*"))


@pytest.mark.parametrize("name", ["../../etc", "a/b", "", ".", "..", "x" * 300, "20261115-014455-3f9a/../.."])
def test_name_in_a_file_does_not_lead_elsewhere(recorded: Summary, tmp_path: Path, name: str) -> None:
    path = changed(
        tmp_path / "a.swarm.json.gz", recorded, lambda document: document["summary"]["session"].update(id=name)
    )
    root = tmp_path / "in" / "sessions"
    found = import_shared(path, root)
    assert found.startswith("shared-") and (root / found).is_dir()
    assert [entry.name for entry in root.iterdir()] == [found]
    assert {entry.name for entry in tmp_path.iterdir()} == {"in", path.name}


# hostile files

_ODD: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2.5, -1e300, 1e300, 10**400, 2**63, "", "x", "\x1b[31m", "\u202ex", "\ud800", "\0", [], {},
    [[]], {"a": 1}, "a" * 5000, [1] * 5000, "1C", "nan", "\n\n", 1e-300, 20_001, 2_000_000_000,
)  # fmt: skip


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values in a JSON document."""
    found = [at] if at else []
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        found += places(part, (*at, key))
    return found


def mutate(chance: random.Random, content: bytes, paths: list[tuple[Any, ...]]) -> bytes:
    """Damage a shared file: values, often in ways that keep their type, keys, the text, or the packed bytes."""
    kind = chance.randrange(13)
    if kind < 10:
        document = json.loads(content)
        for path in chance.sample(paths, chance.choice((1, 1, 2, 5))):
            place: Any = document
            try:
                for step in path[:-1]:
                    place = place[step]
                if kind == 0:
                    del place[path[-1]]
                elif kind == 1 and isinstance(place, list):
                    place += [place[path[-1]]] * chance.choice((1, 3, 5000))
                else:
                    place[path[-1]] = odd_value(chance, place[path[-1]], any_type=kind == 2)
            except (LookupError, TypeError):  # removed, or replaced before
                continue
        content = json.dumps(document).encode(errors="surrogatepass")
    elif kind == 10:
        start = chance.randrange(len(content))
        content = content[:start] + chance.randbytes(chance.randrange(1, 9)) + content[start + chance.randrange(9) :]
    packed = gzip.compress(content, 1)
    at = chance.randrange(len(packed))
    if kind == 11:
        packed = packed[:at]
    if kind == 12:
        packed = packed[:at] + chance.randbytes(2) + packed[at + 2 :]
    return packed


def odd_value(chance: random.Random, value: Any, *, any_type: bool) -> Any:
    if any_type or value is None:
        return chance.choice(_ODD)
    if isinstance(value, bool):
        return not value
    if isinstance(value, float | int):
        number = value * chance.choice((-1, 0, 0.5, 3, 1e-9, 1e9, 1e14, 1e-200, 1e200))
        return int(number) if isinstance(value, int) else number
    return chance.choice([odd for odd in _ODD if isinstance(odd, type(value))])


def use(path: Path, own: Summary, root: Path) -> None:
    """Do with a file all that commands do with it."""
    shared = read_shared(path)
    for sides in ((shared, own), (own, shared)):
        found = compare(sides)
        paint(comparison_blocks(found, {}))
    paint(session_blocks(shared))
    found_session = prepare(root, str(path))
    render_files(found_session, [f"x{form.suffix}" for form in TEXT_FORMATS])
    paint(shared_blocks(found_session, "x", (), ""))
    for make in LEADERBOARDS.values():
        make(found_session.summary)
    shutil.rmtree(root / "s", ignore_errors=True)
    import_shared(path, root / "s")
    list_sessions(root / "s")


def test_damaged_files_are_one_line(tmp_path: Path) -> None:
    """Each can be used, or is refused with a sentence of one line; DAMAGED_FILES=2000 tries more, in a minute."""
    write_session(tmp_path / ID, private_session())
    own = summarise(load_session(tmp_path, ID))
    chance = random.Random(20261117)
    contents = [
        gzip.decompress(shared_bytes(without_private(one).summary))
        for one in (own, summarise(load_session(RECORDED, "last")))
    ]
    documents = [(content, places(json.loads(content))) for content in contents]
    path, refused, used = tmp_path / "x.swarm.json.gz", 0, 0
    for number in range(int(os.environ.get("DAMAGED_FILES", "100"))):
        path.write_bytes(mutate(chance, *documents[number % 2]))
        try:
            use(path, own, tmp_path / "root")
        except BadInput as error:
            refused += 1
            assert "\n" not in str(error) and len(str(error)) < 500, number
        else:
            used += 1
    assert refused > 30 and used > 15, "mutations of both kinds are tried"
