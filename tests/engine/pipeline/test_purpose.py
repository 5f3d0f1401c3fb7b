"""A purpose that is not met: said first in the last line, in every report, with an exit code."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from surgery import Graph
from surgery.base.workers import Worker
from surgery.engine import recipe as recipes
from surgery.engine.bridges import run_pass
from surgery.engine.pipeline import purpose, runner
from surgery.engine.pipeline.records import StepRecord
from surgery.interface import commands as cli
from surgery.interface.report import terminal
from surgery.model import storage
from surgery.model.graph import text
from surgery.model.runtime.executed import Executed
from surgery.model.targets import shipped
from surgery.verification.comparing.deployment import Deployed
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.comparing.output_judge import NOT_RUN, VACUOUS


def model(folder: Path, width: int = 8, opset: int = 17, ops: str = "MatMul") -> Path:
    weight = np.linspace(-1, 1, width * width, dtype=np.float32).reshape(width, width)
    nodes = [helper.make_node("Identity", ["x"], ["i"]), helper.make_node(ops, ["i", "w"], ["y"])]
    ports = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", width]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], [numpy_helper.from_array(weight, "w")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.save(made, folder / "m.onnx")
    return folder / "m.onnx"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = cli.main(list(arguments))
    captured = capsys.readouterr()
    return code, " ".join((captured.out + captured.err).split())


def test_small_weights_are_nothing_to_quantize(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.onnx"
    code, said = run(capsys, "apply", "int8-dynamic", str(model(tmp_path)), "-o", str(out))
    assert code == 0 and out.is_file()
    command = "surgery run quantize-dynamic MODEL --set min_size=0"
    assert f"ok: nothing to quantize: 1 weight below 64 KiB ({command} quantizes all)" in said
    assert [node.op_type for node in onnx.load(out).graph.node] == ["MatMul"]
    code, said = run(capsys, *command.split()[1:3], str(out), *command.split()[4:])
    assert code == 0 and "MatMulInteger" in said


def test_gathers_of_activations_are_no_reason_for_weights_that_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two of the three places have no weight; the one that has decides."""
    made = text.parse("""g (float[N,8] x, int64[2] i) => (float[N,8] y, float[2,8] a, float[2,8] b)
        { y = MatMul(x, w) a = Gather(x, i) b = Gather(y, i) }""")
    made.graph.initializer.append(numpy_helper.from_array(np.eye(8, dtype=np.float32), "w"))
    onnx.save(made, tmp_path / "m.onnx")
    code, said = run(capsys, "apply", "int4", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "out.onnx"))
    assert code == 0 and "ok: nothing to quantize: 1 weight below 4096 elements" in said


def test_strict_writes_no_file_without_the_purpose(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.onnx"
    code, said = run(capsys, "apply", "int8-dynamic", str(model(tmp_path)), "-o", str(out), "--strict")
    assert code == 1 and not out.exists()
    assert "nothing to quantize: 1 weight below 64 KiB" in said and "--strict writes no file" in said


def test_a_refusal_of_every_node_is_a_purpose_not_met(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text("recipe: r\nsteps: [drop-identity, to-float16: {ops_in_float32: [MatMul]}]\n")
    out = tmp_path / "out.onnx"
    code, said = run(capsys, "apply", str(recipe), str(model(tmp_path)), "-o", str(out), "--format", "json")
    assert code == 1 and out.is_file()
    words = "the precision was not changed: 'to-float16' found that it is excluded and stays in float32"
    assert f'"shortfall": "{words}"' in said
    code, said = run(capsys, "apply", str(recipe), str(model(tmp_path)), "-o", str(out), "--force")
    assert code == 1 and f"{words}; 2 -> 1 nodes" in said


def test_a_result_is_not_missing_what_it_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "a.onnx", tmp_path / "b.onnx"
    code, _ = run(capsys, "apply", "fp16", str(model(tmp_path)), "-o", str(first))
    assert code == 0
    code, said = run(capsys, "apply", "fp16", str(first), "-o", str(second))
    assert code == 0 and "precision was not changed" not in said


def test_another_recipe_has_no_such_purpose(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = run(capsys, "apply", "default", str(model(tmp_path)), "-o", str(tmp_path / "out.onnx"))
    assert code == 0 and "nothing to" not in said


@pytest.mark.parametrize(("code", "words"), [(1, "'to-float16' was undone"), (3, "'to-float16' broke")])
def test_an_undone_step_is_named(tmp_path: Path, code: int, words: str) -> None:
    recipe = recipes.parse("steps: [drop-identity, to-float16]")
    records = [
        StepRecord("drop-identity", "committed", 2, 1),
        StepRecord("to-float16", "rolled_back", 1, 1, exit_code=code),
    ]
    found = purpose.shortfall(recipe, records, onnx.load(model(tmp_path)))
    assert found is not None and found.exit_code == code
    assert found.words == f"the precision was not changed: {words}, see above"


def test_the_loss_leads_where_an_expectation_is_not_met(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text("recipe: r\naccuracy: {budget: snr >= 40 dB}\nsteps: [to-float16]\nexpect: {nodes: 1}\n")
    code, said = run(capsys, "apply", str(recipe), str(model(tmp_path)), "-o", str(tmp_path / "out.onnx"), "-q")
    assert code == 1
    assert "failed: 1 expectation is not met; less accurate on purpose, within the budget: SNR " in said
    assert said.endswith(" s; no file was written")


def crashing(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let the worker of a shipped pass end by a signal."""
    work = run_pass.work

    def crash(graph: Graph) -> None:
        with Worker() as worker:
            worker.call("surgery.base.workers.drill:segfault")

    monkeypatch.setattr(run_pass, "work", lambda one, options: crash if one.name == name else work(one, options))


def test_a_step_that_crashed_is_no_refused_rewrite(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    crashing(monkeypatch, "drop-dead")
    recipe = tmp_path / "r.yaml"
    recipe.write_text("recipe: r\non_failure: bisect\nsteps: [drop-identity, drop-dead]\n")
    out = tmp_path / "out.onnx"
    code, said = run(capsys, "apply", str(recipe), str(model(tmp_path)), "-o", str(out))
    assert code == 3 and out.is_file()
    assert "'drop-dead' broke and was undone, see above; 2 -> 1 nodes" in said and "refused" not in said
    assert "drill crashed with SIGSEGV" in said and "ok: " not in said
    code, said = run(capsys, "apply", str(recipe), str(model(tmp_path)), "-o", str(out), "--force", "-q")
    assert code == 3 and "drill crashed with SIGSEGV" in said and "'drop-dead' broke and was undone" in said
    strict = tmp_path / "strict.onnx"
    code, said = run(capsys, "apply", str(recipe), str(model(tmp_path)), "-o", str(strict), "--strict")
    assert code == 3 and not strict.exists() and "broke and was undone, see above; --strict writes no file" in said


def test_every_report_says_what_broke(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    crashing(monkeypatch, "drop-dead")
    recipe = tmp_path / "r.yaml"
    recipe.write_text("recipe: r\non_failure: bisect\nsteps: [drop-identity, drop-dead]\n")
    page = tmp_path / "report.html"
    command = ("apply", str(recipe), str(model(tmp_path)), "-o", str(tmp_path / "out.onnx"), "--force")
    assert cli.main([*command, "--format", "json", "--report", str(page)]) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] and found["shortfalls"] == [
        {"words": "'drop-dead' broke and was undone, see above", "exit_code": 3}
    ]
    (undone,) = found["refused"]
    assert undone["pass"] == "drop-dead" and undone["broke"] and "SIGSEGV" in undone["why"]
    shown = page.read_text()
    assert '<div class="verdict warn">' in shown and "&#39;drop-dead&#39; broke and was undone, see above" in shown
    assert cli.main([*command, "--format", "junit"]) == 3
    assert "<error" in capsys.readouterr().out


def test_a_pass_of_the_user_that_broke_is_no_failure_of_surgery(tmp_path: Path) -> None:
    original = storage.opened(model(tmp_path))
    result = runner.run(original, recipes.parse("steps: [drop-identity]"))
    ours = StepRecord("drop-dead", "rolled_back", 1, 1, exit_code=3, message="crashed")
    for step, code in ((ours, 3), (replace(ours, is_foreign=True), 1), (replace(ours, exit_code=1), 0)):
        found = replace(result, steps=(*result.steps, step))
        assert (found.ok, found.exit_code, len(found.broken)) == (True, code, int(code > 0))


UNFIT = "does not run the result: opset 17: the target takes 7 to 13"


def test_a_target_that_does_not_run_the_result_is_a_purpose_not_met(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text("recipe: r\nsteps: [drop-identity]\n")
    out, page = tmp_path / "out.onnx", tmp_path / "report.html"
    command = ("apply", str(recipe), str(model(tmp_path)), "--target", "rknn-like", "-o", str(out), "--force")
    code, said = run(capsys, *command, "--report", str(page))
    assert code == 1 and out.is_file()
    assert f"rknn-like {UNFIT}" in said and "; 2 -> 1 nodes" in said and "ok for" not in said
    assert "'surgery inspect --target rknn-like' lists the nodes, and the steps that help" in said
    assert '<div class="verdict warn">' in page.read_text() and f"rknn-like {UNFIT}" in page.read_text()
    code, said = run(capsys, *command, "-q")
    assert code == 1 and said.startswith(f"rknn-like {UNFIT}")
    strict = tmp_path / "strict.onnx"
    code, said = run(capsys, *command[:-2], str(strict), "--strict")
    assert code == 1 and not strict.exists() and said.endswith("--strict writes no file")
    code, said = run(capsys, "apply", "default", str(model(tmp_path)), "--target", "ort-cpu", "-o", str(out), "--force")
    assert code == 0 and "ok for ort-cpu" in said


def test_nodes_that_a_provider_leaves_to_the_cpu_as_before_are_no_shortfall(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    proto = onnx.load(model(tmp_path))
    proto.graph.node[1].output[0] = "m"
    proto.graph.node.append(helper.make_node("Acosh", ["m"], ["y"]))  # CUDA has no kernel for it
    path = tmp_path / "acosh.onnx"
    onnx.save(proto, path)
    command = ("apply", "default", str(path), "--target", "ort-cuda", "-o", str(tmp_path / "out.onnx"))
    code, said = run(capsys, *command)
    assert code == 0 and "ort-cuda leaves nodes of the result to the CPU: Acosh is not run" in said
    assert "ok for ort-cuda: 3 -> 2 nodes" in said
    original = storage.opened(model(tmp_path))
    graph = Graph(storage.ir_from_proto(proto, original.weights), target=shipped.find("ort-cuda"))
    found = purpose.off_target(graph, original, None)
    assert found is not None and (found.exit_code, "to the CPU: Acosh" in found.words) == (1, True)


def test_what_the_runtime_of_a_target_ran_is_no_shortfall(tmp_path: Path) -> None:
    """OpenVINO computes double as float32, so its profile has no operators in double."""
    body = "g (double[n] x) => (double[n] y) { y = Exp(x) }"
    original = storage.opened(model(tmp_path))
    graph = Graph(storage.ir_from_proto(text.parse(body), original.weights), target=shipped.find("openvino"))
    ran = Deployed(Verdict(Status.CLOSE), Executed({("Eltwise", "CPU"): 1}), runtime="OpenVINO 2026.4.1")
    found = purpose.off_target(graph, original, ran)
    assert found is not None and found.exit_code == 0
    assert found.words.startswith("OpenVINO 2026.4.1 ran the result, but openvino does not promise it: ")
    wrong, elsewhere = replace(ran, verdict=Verdict(Status.DIFFERENT)), replace(ran, runtime="ONNX Runtime")
    for other in (wrong, elsewhere, replace(ran, executed=None), None):
        found = purpose.off_target(graph, original, other)
        assert found is not None and found.exit_code == 1 and "openvino does not run the result" in found.words


def test_a_result_that_fails_on_the_target_is_not_ok_for_it(tmp_path: Path) -> None:
    recipe = recipes.parse("target: openvino\nsteps: [drop-identity]")
    result = runner.run(storage.opened(model(tmp_path)), recipe)
    failed = Deployed(Verdict(Status.UNVERIFIED, NOT_RUN), runtime="OpenVINO 2026.4.1")
    assert terminal.conclusion(replace(result, deployed=failed)).plain.startswith("ok: 2 -> 1 nodes")
    unproven = replace(failed, verdict=Verdict(Status.UNVERIFIED, VACUOUS))
    for found in (None, unproven, replace(failed, runtime="ONNX Runtime")):
        assert terminal.conclusion(replace(result, deployed=found)).plain.startswith("ok for openvino: 2 -> 1 nodes")


def test_models_without_operators_of_onnx_need_no_opset(tmp_path: Path) -> None:
    scaler = helper.make_node("Scaler", ["x"], ["y"], domain="ai.onnx.ml", offset=[0.5], scale=[2.0])
    ports = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", 1]) for name in "xy"]
    made = helper.make_model(
        helper.make_graph([scaler], "g", ports[:1], ports[1:]), opset_imports=[helper.make_opsetid("ai.onnx.ml", 1)]
    )
    assert runner.apply(made, "tidy", target="ort-cpu").misfits is None


def test_a_batch_counts_models_without_their_purpose(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text("recipe: r\nsteps: [drop-identity]\n")
    made, page = tmp_path / "made", tmp_path / "batch.html"
    command = ("batch", str(recipe), str(model(tmp_path)), "--out", str(made), "--target", "rknn-like", "-j", "1")
    assert cli.main([*command, "--format", "json", "--report", str(page)]) == 1
    found = json.loads(capsys.readouterr().out)
    (row,) = found["models"]
    assert (row["state"], row["kind"]) == ("done", "purpose") and row["reason"].startswith(f"rknn-like {UNFIT}")
    assert not found["ok"] and [one["kind"] for one in found["failures"]] == ["purpose"]
    assert "1 model does not meet the purpose." in page.read_text()
    code, said = run(capsys, *command)
    assert code == 1 and "failed: 1 model: 1 done, 1 of them missed its purpose" in said
