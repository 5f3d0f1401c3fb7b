"""Every mistake in the parts of a recipe, with its line and column."""

import pytest
from support.recipe_texts import mistakes, step

pytestmark = pytest.mark.usefixtures("passes", "shelf")

# Messages of the parts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("drop-dropuot", "2:5: no pass 'drop-dropuot'; did you mean 'drop-dropout'?"),
        ("DropDropout", "2:5: no pass 'DropDropout'; did you mean 'drop-dropout'?"),
        (
            "drop-dropout\n   - fold-constants",
            "2:5: no pass 'drop-dropout - fold-constants'; a name cannot contain blanks; check the indentation",
        ),
        ("drop_dropout:", "2:5: no pass 'drop_dropout'; did you mean 'drop-dropout'?"),
        ("xyz", "2:5: no pass 'xyz'; 'surgery passes' lists them"),
        ("tidy", "2:5: no pass 'tidy'; it is a recipe: write 'use: tidy'"),
        ("pass: drop-dropuot", "2:11: no pass 'drop-dropuot'; did you mean 'drop-dropout'?"),
        ("fold-constants: {depth: 2}", "2:22: pass 'fold-constants' has no option 'depth'; did you mean 'deep'?"),
        ("fold-constants: 5", "2:21: 'fold-constants' takes a mapping of options, not 5"),
        ("fold-constants: [rounds]", "2:21: 'fold-constants' takes a mapping of options, not a list"),
        ("fold-constants: {1: 2}", "2:22: a key is text, not 1; quote it"),
        ("fuse-attention", "2:5: pass 'fuse-attention' needs the option 'heads' (int)"),
        ("fuse-attention: {target: onnx}", "2:5: pass 'fuse-attention' needs the option 'heads' (int)"),
        ("", "2:4: an empty step; name a pass or remove the '-'"),
        ("''", "2:5: a step is the name of a pass or a mapping, not ''"),
        ("{}", "2:5: an empty step; name a pass or remove the '-'"),
        ("5", "2:5: a step is the name of a pass or a mapping, not 5"),
        ("[a]", "2:5: a step is the name of a pass or a mapping, not a list"),
        ("pass:", "2:5: 'pass' needs the name of a pass"),
        ("pass: 5", "2:11: 'pass' takes the name of a pass, not 5"),
        ("pass: '5'", "2:11: no pass '5'; 'surgery passes' lists them"),
        ("pass: drop-dropout\n    with: 5", "3:11: 'with' takes a mapping of options, not 5"),
        ("pas: drop-dropout", "2:5: no key 'pas'; did you mean 'pass'?"),
        (
            "pass: drop-dropout\n    option: {}",
            "3:5: no key 'option'; known here: pass, with, except, when, on_failure, expect",
        ),
        ("pass: drop-dropout\n    options: {}", "3:5: no key 'options'; did you mean 'with'?"),
        ("pass: drop-dropout\n    if: {}", "3:5: no key 'if'; did you mean 'when'?"),
        ("pass: drop-dropout\n    use: tidy", "3:5: 'use' cannot be combined with 'pass'; a step is one of them"),
        (
            "pass: drop-dropout\n    on_failure: rolback",
            "3:17: 'on_failure' takes abort, rollback, bisect or keep, not 'rolback'; did you mean 'rollback'?",
        ),
        ("pass: drop-dropout\n    on_failure: 1", "3:17: 'on_failure' takes abort, rollback, bisect or keep, not 1"),
        (
            "fold-constants: {rounds: 1}\n    when: {nodes: 1}",
            "3:5: 'when' cannot be combined with 'fold-constants'; write 'pass: fold-constants' and put its options "
            "under 'with'",
        ),
        (
            "fold-constants:\n    rounds: 1",
            "3:5: 'rounds' is at the same level as 'fold-constants', not in it; indent it further",
        ),
        (
            "fold-constants: {rounds: 1}\n    drop-dropout: {}",
            "3:5: 'drop-dropout' cannot be combined with 'fold-constants'; begin each step with '- '",
        ),
        ("5: {}", "2:5: a key is text, not 5; quote it"),
        ("drop-dropout: {}\n    5: a", "3:5: a key is text, not 5; quote it"),
        ("when: {}", "2:5: this step has no 'pass', 'use' or 'repeat'"),
        ("steps: [drop-dropout]", "2:5: 'steps' needs 'repeat' next to it: until-stable, or a number of rounds"),
        ("repeat: 2", "2:5: 'repeat' needs 'steps', the steps to repeat"),
        ("repeat: 2\n    steps: []", "3:12: 'steps' lists no step; name at least one pass"),
        ("repeat: 2\n    steps: tidy", "3:12: 'steps' takes a list, not 'tidy'; begin each step with '- '"),
        (
            "repeat: forever\n    steps: [drop-dropout]",
            "2:13: 'repeat' takes until-stable or a number of rounds, not 'forever'",
        ),
        (
            "repeat: until_stable\n    steps: [drop-dropout]",
            "2:13: 'repeat' takes until-stable or a number of rounds, not 'until_stable'; did you mean 'until-stable'?",
        ),
        ("repeat: 0\n    steps: [drop-dropout]", "2:13: 'repeat' is at least 1, not 0"),
        ("repeat: true\n    steps: [a]", "2:13: 'repeat' takes until-stable or a number of rounds, not true"),
        ("repaet: 2\n    steps: [drop-dropout]", "2:5: no key 'repaet'; did you mean 'repeat'?"),
        (
            "repeat: 2\n    steps: [drop-dropout]\n    on_failure: keep",
            "4:5: no key 'on_failure'; known here: repeat, steps, except, when",
        ),
        ("use:", "2:5: 'use' needs the name or path of a recipe"),
        ("use: [a]", "2:10: 'use' takes the name or path of a recipe, not a list"),
        ("use: tydy", "2:10: no recipe 'tydy'; did you mean 'tidy'?"),
        ("use: zzzz", "2:10: no recipe 'zzzz'; shipped are bert, tidy"),
        ("use: .", "2:10: '.' is a directory, not a recipe"),
        ("use: tidy\n    steps: []", "3:5: no key 'steps'; known here: use, without, with, except, when"),
    ],
)
def test_mistakes_in_a_step(text: str, expected: str) -> None:
    assert f"r.yaml:{expected}" in mistakes(step(text))


def test_a_wrong_step_is_reported_once() -> None:
    for text in ("pass: drop-dropuot", "pas: drop-dropout", "repaet: 2\n    steps: [drop-dropout]", "use: tydy", "5"):
        assert len(mistakes(step(text))) == 1


def test_options_next_to_the_name_are_checked_too() -> None:
    assert mistakes(step("fold-constants:\n    rouns: 1\n    deep: 2")) == [
        "r.yaml:3:5: 'rouns' is at the same level as 'fold-constants', not in it; indent it further",
        "r.yaml:3:5: pass 'fold-constants' has no option 'rouns'; did you mean 'rounds'?",
        "r.yaml:4:5: 'deep' is at the same level as 'fold-constants', not in it; indent it further",
        mistakes(step("fold-constants: {deep: 2}"))[0].replace("2:22", "4:5"),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("recipe: 5", "1:9: 'recipe' takes the name of the recipe, not 5"),
        ("recipe: ''", "1:9: 'recipe' takes the name of the recipe, not ''"),
        ("recipe: [a]", "1:9: 'recipe' takes the name of the recipe, not a list"),
        ('recipe: "a\\nb"', "1:9: 'recipe' takes the name of the recipe on one line, without control characters"),
        ("about: {a: b}", "1:8: 'about' takes text, not a mapping"),
        ("model: 5", "1:8: 'model' takes the path of a model, not 5"),
        ('model: "a\\0b"', "1:8: 'model' takes the path of a model on one line, without control characters"),
        ("output: [a]", "1:9: 'output' takes a file name such as '{stem}.opt.onnx', not a list"),
        ("output: '{stm}.onnx'", "1:9: 'output' knows no '{stm}'; did you mean '{stem}'?"),
        ("output: 'm-{sha265:12}.onnx'", "1:9: 'output' knows no '{sha265:12}'; did you mean '{sha256:12}'?"),
        (
            "output: 'm-{sha256:4}.onnx'",
            "1:9: 'output' has '{sha256:4}'; a digest has 8 to 64 digits, such as '{sha256:12}'",
        ),
        (
            "output: '{sha256:12}/m.onnx'",
            "1:9: 'output' has a digest in the folder; '{sha256:12}' is allowed in the file name only",
        ),
        ("output: '{}.onnx'", "1:9: 'output' knows no '{}'; did you mean '{stem}'?"),
        ("plugins: 5", "1:10: 'plugins' takes the names of modules and the paths of .py files, not 5"),
        ("plugins: [a b]", "1:11: a plugin is an installed module or a .py file, not 'a b'"),
        ("plugins: [./a]", "1:11: a plugin is an installed module or a .py file, not './a'"),
        ("plugins: [nowhere.py]", "1:11: no plugin file 'nowhere.py'"),
        ("plugins: [no_such_module]", "1:11: no plugin module 'no_such_module'; install it, or name a .py file"),
        ("plugins: [builtins.x]", "1:11: no plugin module 'builtins.x'; install it, or name a .py file"),
        ("name: x", "1:1: no key 'name'; did you mean 'recipe'?"),
        ("inputs: 5", "1:9: 'inputs' takes a mapping such as {dims: {batch: 1}}, not 5"),
        ("inputs: {dim: {batch: 1}}", "1:10: no key 'dim'; did you mean 'dims'?"),
        ("inputs: {dims: [1]}", "1:16: 'dims' takes a mapping such as {batch: [1, 3]}, not a list"),
        ("inputs: {dims: {batch: []}}", "1:24: dim 'batch' lists no extent"),
        ("inputs: {dims: {batch: 0}}", "1:24: 'batch' is at least 1, not 0"),
        ("inputs: {dims: {batch: [1, -2]}}", "1:28: 'batch' is at least 1, not -2"),
        ("inputs: {dims: {batch: 1.5}}", "1:24: 'batch' takes a whole number or a list of them, not 1.5"),
        ("inputs: {dims: {batch: }}", "1:23: 'batch' takes a whole number or a list of them, not nothing"),
        (
            "inputs: {dims: {batch: '3'}}",
            "1:24: 'batch' takes a whole number or a list of them, not '3'; remove the quotes",
        ),
        ("inputs: {dims: {3: 1}}", "1:17: a key is text, not 3; quote it"),
        ("inputs: {tensors: 1}", "1:19: 'tensors' takes a mapping such as {mask: {values: [0, 1]}}, not 1"),
        (
            "inputs: {tensors: {x: [0]}}",
            "1:23: 'x' takes a mapping such as {values: [0, 1]} or {range: [0, 9]}, not a list",
        ),
        ("inputs: {tensors: {x: {}}}", "1:23: input 'x' takes one of values, range, file; here are 0"),
        (
            "inputs: {tensors: {x: {values: [0], range: [0, 1]}}}",
            "1:23: input 'x' takes one of values, range, file; here are 2",
        ),
        ("inputs: {tensors: {x: {vals: [0]}}}", "1:24: no key 'vals'; did you mean 'values'?"),
        ("inputs: {tensors: {x: {values: 0}}}", "1:32: 'values' takes a list such as [0, 1], not 0"),
        ("inputs: {tensors: {x: {values: []}}}", "1:32: 'values' takes a list such as [0, 1], not a list"),
        ("inputs: {tensors: {x: {values: [[0]]}}}", "1:33: 'values' lists numbers, bools or texts, not a list"),
        (
            "inputs: {tensors: {x: {range: [0]}}}",
            "1:31: 'range' takes the least and the greatest value, such as [0, 9], not a list",
        ),
        ("inputs: {tensors: {x: {range: [9, 0]}}}", "1:31: 'range' starts above its end; did you mean [0, 9]?"),
        (
            "inputs: {tensors: {x: {range: [0, .inf]}}}",
            "1:31: 'range' takes the least and the greatest value, such as [0, 9], not a list",
        ),
        ("inputs: {tensors: {x: {file: 1}}}", "1:30: 'file' takes the path of a .npy, .npz or .pb file, not 1"),
        (
            "inputs: {tensors: {x: {file: a.txt}}}",
            "1:30: 'file' takes the path of a .npy, .npz or .pb file, not 'a.txt'",
        ),
        ("inputs: {tensors: {x: {file: a.pb}}}", "1:30: no file 'a.pb' in the recipe's folder"),
        ("inputs: {tensors: {x: {file: a.npy}}}", "1:30: no file 'a.npy' in the recipe's folder"),
        (
            "inputs: {data: 5}",
            "1:16: 'data' takes the paths of .npz files and of folders with input_0.pb or images in them, functions "
            "such as data.py:batches, and mappings such as {images: FOLDER, mean: 0.5}, not 5",
        ),
        ("inputs: {data: {mean: 1}}", "1:16: a mapping under 'data' needs 'images', a folder of images"),
        ("inputs: {data: {images: a}}", "1:25: no file or folder 'a' in the recipe's folder"),
        (
            "inputs: {data: {images: ., mean: x}}",
            "1:34: 'mean' takes a number, or a list with one for each channel, not 'x'",
        ),
        (
            "inputs: {data: {images: ., size: [1, 0]}}",
            "1:34: 'size' takes a whole number, or height and width such as [224, 320], not a list",
        ),
        ("inputs: {data: {images: ., scale: 1/0}}", "1:35: 'scale' takes a number such as 0.0039, or 1/255, not '1/0'"),
        (
            "inputs: {data: {images: ., fit: crp}}",
            "1:33: 'fit' takes stretch, crop or pad, not 'crp'; did you mean 'crop'?",
        ),
        ("inputs: {data: {images: ., limit: 0}}", "1:35: 'limit' is at least 1, not 0"),
        ("inputs: {data: {images: ., std_dev: 1}}", "1:28: no key 'std_dev'; did you mean 'std'?"),
        ("inputs: {data: calib.py:make}", "1:16: no file 'calib.py' in the recipe's folder"),
        ("inputs: {data: [a.npz]}", "1:17: no file or folder 'a.npz' in the recipe's folder"),
        ("inputs: {only_given: 1}", "1:22: 'only_given' takes true or false, not 1"),
        ("inputs: {only_given: 'true'}", "1:22: 'only_given' takes true or false, not 'true'; remove the quotes"),
        ("inputs: {only_givn: true}", "1:10: no key 'only_givn'; did you mean 'only_given'?"),
        (
            "inputs: {generator: make.py}",
            "1:21: 'generator' takes the path of a Python file and the name of a function in it, such as "
            "inputs.py:make, not 'make.py'",
        ),
        (
            "inputs: {generator: make:run}",
            "1:21: 'generator' takes the path of a Python file and the name of a function in it, such as "
            "inputs.py:make, not 'make:run'",
        ),
        ("inputs: {generator: 'make.py:run'}", "1:21: no file 'make.py' in the recipe's folder"),
        ("verify: {custom_op_library: 5}", "1:29: 'custom_op_library' takes the paths of shared libraries, not 5"),
        ("verify: {custom_op_library: [a.so]}", "1:30: no file 'a.so' in the recipe's folder"),
        ("verify: off", "1:9: 'verify' takes a mapping such as {rtol: 1e-4, atol: 1e-5}, not 'off'"),
        ("verify: {rtol: tight}", "1:16: 'rtol' takes a number, not 'tight'"),
        ("verify: {rtol: '1e-4'}", "1:16: 'rtol' takes a number, not '1e-4'; remove the quotes"),
        ("verify: {rtol: -1e-4}", "1:16: 'rtol' is never negative: -1e-4"),
        ("verify: {atol: .nan}", "1:16: 'atol' takes a number, not .nan"),
        ("verify: {atol: true}", "1:16: 'atol' takes a number, not true"),
        ("verify: {seed: 1.5}", "1:16: 'seed' takes a whole number, not 1.5"),
        ("verify: {seed: -1}", "1:16: 'seed' is at least 0, not -1"),
        ("verify: {seed: true}", "1:16: 'seed' takes a whole number, not true"),
        ("verify: {timeout: 0}", "1:19: 'timeout' is more than 0, not 0"),
        ("verify: {timeout: 5m}", "1:19: 'timeout' takes a number of seconds, not '5m'"),
        ("verify: {mode: eech}", "1:16: 'mode' takes each, end or off, not 'eech'; did you mean 'each'?"),
        ("verify: {unverified: [a]}", "1:22: 'unverified' takes refuse or accept, not a list"),
        ("accuracy: {budget: cosine >= 2}", "1:20: 'cosine' must be between 0 and 1"),
        ("accuracy: {budget: snr = 3}", "1:20: a limit has the form 'snr >= 30 dB'"),
        ("accuracy: {budget: snr <= 3 dB}", "1:20: 'snr' takes >=, not <="),
        ("accuracy: {budget: snr >= 3 %}", "1:20: 'snr' is not measured in %"),
        ("accuracy: {budget: sn >= 3}", "1:20: there is no metric 'sn'; the metrics are cosine, snr, max_rel, top1"),
        (
            "accuracy: {budget: {y: 3}}",
            "1:20: 'budget' takes a limit such as 'snr >= 30 dB', or limits by output such as "
            "{all: snr >= 30 dB, logits: top1 >= 99 %}, not a mapping",
        ),
        ("accuracy: {sets: 3}", "1:11: 'accuracy' needs a budget such as 'snr >= 30 dB', or a metric"),
        ("accuracy: {metric: {drop: 1}}", "1:20: 'metric' needs a function such as metric.py:score"),
        (
            "accuracy: {metric: {function: m.py, drop: 1 %}}",
            "1:31: 'function' takes the path of a Python file and the name of a function in it, such as "
            "metric.py:score, not 'm.py'",
        ),
        (
            "accuracy: {metric: {function: 'm.py:f', drop: 1 %}}",
            "1:31: no file 'm.py' in the recipe's folder",
        ),
        (
            "accuracy: {metric: m.py:f}",
            "1:20: 'metric' takes a mapping such as {function: metric.py:score, drop: 0.5 %}, not 'm.py:f'",
        ),
        ("accuracy: {metric: {drop: 0, function: 'm.py:f'}}", "1:40: no file 'm.py' in the recipe's folder"),
        ("calibration: {sets: 0}", "1:21: 'sets' is at least 1, not 0"),
        ("verify: {memory: much}", "1:18: 'memory' takes a size such as 512MB or 2GiB, not 'much'"),
        ("verify: {memory: -5}", "1:18: 'memory' takes a size such as 512MB or 2GiB, not -5"),
        ("verify: {memory: true}", "1:18: 'memory' takes a size such as 512MB or 2GiB, not true"),
        (f"verify: {{memory: {'9' * 400}MB}}", f"1:18: 'memory' takes a size such as 512MB or 2GiB, not '{'9' * 40}…'"),
        ("verify: {rtoll: 1}", "1:10: no key 'rtoll'; did you mean 'rtol'?"),
        ("expect: [a]", "1:9: 'expect' takes a mapping such as {ops: {Dropout: 0}, nodes: \"<= 500\"}, not a list"),
        (
            "expect: {sites: 1}",
            "1:10: no key 'sites'; known here: "
            "ops, nodes, opset, predicates, signature, speed, executed, target, empty",
        ),
        ("expect: {signature: same}", "1:21: 'signature' takes unchanged, not 'same'"),
        ("expect: {ops: [Dropout]}", "1:15: 'ops' takes a mapping such as {Dropout: 0}, not a list"),
        ("expect: {ops: {Dropout: none}}", "1:25: 'none' is not a comparison such as 0, '>= 1' or '<= 500'"),
        ("expect: {ops: {Dropout: }}", "1:24: 'Dropout' takes a number or a comparison such as '>= 1', not nothing"),
        ("expect: {nodes: -1}", "1:17: a count is never negative: -1"),
        ("expect: {nodes: '> -1'}", "1:17: a count is never negative: '> -1'"),
        ("expect: {nodes: 1.5}", "1:17: 'nodes' takes a number or a comparison such as '>= 1', not 1.5"),
        ("expect: {nodes: '=> 1'}", "1:17: '=>' does not compare; did you mean '>= 1'?"),
        ("expect: {nodes: '= 1'}", "1:17: '=' does not compare; did you mean '== 1'?"),
        ("expect: {nodes: '>> 1'}", "1:17: '>>' does not compare; use ==, !=, <, <=, > or >="),
        ("expect:\n  nodes: >1\n", "2:10: 'nodes' has an empty text here; put the comparison in quotes: '>= 1'"),
        ("expect: {opset: [1]}", "1:17: 'opset' takes a number or a comparison such as '>= 1', not a list"),
    ],
)
def test_mistakes_in_a_section(text: str, expected: str) -> None:
    assert mistakes(f"{text}\nsteps: [drop-dropout]\n") == [f"r.yaml:{expected}"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("when: {node: 1}", "3:12: no key 'node'; did you mean 'nodes'?"),
        ("when: {sites: 1}", "3:12: no key 'sites'; known here: ops, nodes, opset, predicates"),
        ("when: {ops: {Relu: many}}", "3:24: 'many' is not a comparison such as 0, '>= 1' or '<= 500'"),
        ("when: 5", "3:11: 'when' takes a mapping such as {ops: {Softmax: \">= 1\"}}, not 5"),
        ("expect: {sites: -1}", "3:21: a count is never negative: -1"),
    ],
)
def test_mistakes_next_to_a_pass(text: str, expected: str) -> None:
    assert mistakes(step(f"pass: drop-dropout\n    {text}")) == [f"r.yaml:{expected}"]


def test_steps_that_are_not_a_list() -> None:
    assert mistakes("steps: drop-dropuot") == [
        "r.yaml:1:8: 'steps' takes a list, not 'drop-dropuot'; begin each step with '- '",
        "r.yaml:1:8: no pass 'drop-dropuot'; did you mean 'drop-dropout'?",
    ]
    assert mistakes("steps:\n  drop-dropout:\n  fold-constants:\n") == [
        "r.yaml:2:3: 'steps' takes a list, not a mapping; begin each step with '- '"
    ]
    assert mistakes("steps: []") == ["r.yaml:1:8: 'steps' lists no step; name at least one pass"]


def test_the_value_of_a_misspelt_key_is_checked() -> None:
    for key, message in (
        ("step", "1:1: no key 'step'; did you mean 'steps'?"),
        ("passes", "1:1: no key 'passes'; did you mean 'steps'?"),
    ):
        assert mistakes(f"{key}:\n  - drop-dropuot\n") == [
            f"r.yaml:{message}",
            "r.yaml:2:5: no pass 'drop-dropuot'; did you mean 'drop-dropout'?",
        ]
    assert len(mistakes("do:\n  - drop-dropuot\n")) == 3


def test_messages_stay_on_one_line() -> None:
    long = "x" * 900  # a YAML key is at most 1,024 characters
    text = (
        f'"a\\nb\\e[31m": 1\n"{long}": 1\nverify: {{memory: "1\\n2"}}\nexpect: {{nodes: "a\\nb{long}"}}\nsteps:\n'
        f'  - "p\\nq"\n  - "{long}": 5\n  - fold-constants: {{"o\\np": 1, max_growth: "{long}"}}\n  - use: "{long}"\n'
    )
    found = mistakes(text)
    assert len(found) == 10
    assert all(line.isprintable() and len(line) < 400 for line in found)
