"""The viewer in use: keyboard, touch, addresses, the outline, what is saved, and whether everybody can use it."""

import argparse
import shlex
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from support import drawings
from support.pictures import compare

from surgery.interface.commands import extract

pytestmark = pytest.mark.slow

CHANGED = drawings.changed()
PICTURES = Path(__file__).parent / "pictures"


def row(name: str) -> int:
    """Return the row of a node of `CHANGED`."""
    return CHANGED["nodes"]["name"].index(CHANGED["strings"].index(name))


def stage(page: Any) -> Any:
    return page.get_by_role("application")


def camera(page: Any) -> list[float]:
    return page.evaluate("[view.camera.x, view.camera.y, view.camera.k]")


def test_the_keyboard_moves_zooms_and_fits(open_viewer: Any) -> None:
    page = open_viewer(CHANGED)
    stage(page).focus()
    x, y, k = camera(page)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert camera(page)[0] > x and camera(page)[1] > y
    page.keyboard.press("+")
    assert camera(page)[2] == pytest.approx(1.25 * k)
    page.keyboard.press("-")
    page.keyboard.press("-")
    assert camera(page)[2] < k
    page.keyboard.press("0")
    assert camera(page) == pytest.approx([x, y, k])


def test_the_keyboard_walks_along_edges_and_opens_groups(open_viewer: Any) -> None:
    page = open_viewer(drawings.grouped(1_000))
    stage(page).focus()
    page.keyboard.press("Home")
    item = page.evaluate("view.selected")
    assert page.evaluate("view.model.isGroup(view.selected)")
    boxes = page.evaluate("view.scene.leaves.length")
    page.keyboard.press("Enter")
    assert page.evaluate("view.scene.leaves.length") > boxes
    assert "opened" in page.get_by_role("status").inner_text()
    page.keyboard.press("Enter")
    assert page.evaluate("view.scene.leaves.length") == boxes
    page.keyboard.press("Shift+ArrowDown")
    after = page.evaluate("view.selected")
    assert after != item
    page.keyboard.press("Shift+ArrowUp")
    assert page.evaluate("view.selected") == item
    page.keyboard.press("Escape")
    assert page.evaluate("view.selected") == -1


def test_a_group_opens_and_closes_at_the_clicked_position(open_viewer: Any) -> None:
    page = open_viewer(drawings.grouped(1_000), reduced_motion="no-preference")
    group = page.evaluate("[...view.scene.leaves].find((item) => view.model.isGroup(item))")
    for _ in range(2):
        left, top, *_ = page.evaluate(
            "(g) => { const b = view.canvas.getBoundingClientRect(), [x, y] = view.camera.toScreen(view.scene.x[g],"
            " view.scene.y[g]); return [x + b.left, y + b.top]; }",
            group,
        )
        was_open = page.evaluate("(g) => view.layout.open[g - view.model.n]", group)
        page.mouse.click(left + 8 * camera(page)[2], top + 12 * camera(page)[2])
        page.wait_for_timeout(400)
        assert page.evaluate("(g) => view.layout.open[g - view.model.n]", group) != was_open
        assert page.evaluate("view.scene.tween") is None


def test_wheel_drag_and_double_click(open_viewer: Any) -> None:
    page = open_viewer(CHANGED)
    k = camera(page)[2]
    page.mouse.move(500, 650)
    page.mouse.wheel(0, -300)
    page.wait_for_timeout(50)
    assert camera(page)[2] > k
    x = camera(page)[0]
    page.mouse.move(400, 600)
    page.mouse.down()
    page.mouse.move(300, 600, steps=4)
    page.mouse.up()
    assert camera(page)[0] > x
    assert page.evaluate("view.selected") == -1
    k = camera(page)[2]
    page.mouse.dblclick(400, 700)
    assert camera(page)[2] > k


def test_two_fingers_zoom(open_viewer: Any) -> None:
    page = open_viewer(CHANGED, width=360, height=740, has_touch=True, is_mobile=True)
    k = camera(page)[2]
    session = page.context.new_cdp_session(page)
    for kind, gap in (("touchStart", 40), ("touchMove", 80), ("touchMove", 120)):
        points = [{"x": 180 - gap, "y": 300, "id": 1}, {"x": 180 + gap, "y": 300, "id": 2}]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    page.wait_for_timeout(50)
    assert camera(page)[2] > 2 * k


def test_an_address_shows_a_node_in_a_state(open_viewer: Any) -> None:
    gelu = row("layer.1/gelu")
    page = open_viewer(CHANGED, fragment=f"#state=1&node={gelu}")
    assert page.evaluate("[view.state, view.selected, view.scene.shown[view.selected]]") == [1, gelu, 1]
    left, top, right, bottom = page.evaluate("view.camera.view()")
    x, y, *_ = page.evaluate("view.scene.rectangle(view.selected)")
    assert left <= x <= right and top <= y <= bottom


def test_an_address_shows_a_place(open_viewer: Any) -> None:
    page = open_viewer(CHANGED, fragment="#at=40,50,2")
    assert camera(page) == [40, 50, 2]


@pytest.mark.parametrize(
    "fragment", ["#node=99999", "#node=-1", "#state=x", "#at=1,NaN,-3", "#open=7,x", "#steps", "#=&=%"]
)
def test_an_address_without_a_target_shows_the_whole_graph(open_viewer: Any, fragment: str) -> None:
    page = open_viewer(CHANGED, fragment=fragment)
    assert page.evaluate("[view.state, view.selected]") == [2, -1]


def test_back_and_forward(open_viewer: Any) -> None:
    page = open_viewer(CHANGED)
    page.evaluate(f"view.go({row('tail')})")
    page.evaluate(f"view.go({row('head')})")
    page.evaluate("view.setState(1)")
    assert page.evaluate("location.hash") == f"#state=1&node={row('head')}"
    page.go_back()
    assert page.evaluate("[view.state, view.selected]") == [2, row("head")]
    page.go_back()
    assert page.evaluate("[view.state, view.selected]") == [2, row("tail")]
    page.go_forward()
    assert page.evaluate("[view.state, view.selected]") == [2, row("head")]


def test_a_link_of_the_page_leads_to_a_state(open_viewer: Any) -> None:
    page = open_viewer(CHANGED)
    page.evaluate("location.hash = '#state=0'")
    page.wait_for_selector(".sv-state:has-text('original')")
    # What belongs to the page is left to it.
    page.evaluate("location.hash = '#summary'")
    page.wait_for_timeout(400)
    assert page.evaluate("[location.hash, view.state]") == ["#summary", 0]


def test_the_outline_has_the_same_as_the_picture(open_viewer: Any) -> None:
    page = open_viewer(CHANGED)
    page.get_by_role("tab", name="Outline").click()
    tree = page.get_by_role("tree", name="Outline of the graph")
    items = tree.get_by_role("treeitem")
    assert items.count() == 5
    items.nth(1).focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    gelu = tree.get_by_role("treeitem", name="Gelu layer.0/gelu")
    assert gelu.get_attribute("aria-level") == "3"
    assert gelu.get_attribute("aria-setsize") == "6"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.evaluate("view.selected") == row("layer.0/gemm")
    assert page.evaluate("document.activeElement.getAttribute('aria-selected')") == "true"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert tree.get_by_role("treeitem", name="Gelu layer.0/gelu").count() == 0
    # And the other way round.
    page.evaluate(f"view.go({row('layer.0/norm')})")
    assert tree.get_by_role("treeitem", selected=True).inner_text().startswith("LayerNormalization")


def test_a_region_is_saved_as_svg(open_viewer: Any, tmp_path: Path) -> None:
    page = open_viewer(CHANGED)
    page.evaluate(f"view.go({row('layer.0/gelu')})")
    with page.expect_download() as event:
        page.get_by_role("button", name="Save as SVG").click()
    assert event.value.suggested_filename == "Gelu.svg"
    event.value.save_as(tmp_path / "region.svg")
    root = ElementTree.parse(tmp_path / "region.svg").getroot()
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    # The node, its badge, its producer and its consumer; nothing else.
    assert sorted(texts) == ["+", "Gelu", "Gemm", "LayerNormalization"]
    # Two edges, and the shapes of arrows and of hatching.
    assert len(list(root.iter("{http://www.w3.org/2000/svg}path"))) == 4


def test_a_group_and_the_visible_part_are_saved_as_svg(open_viewer: Any) -> None:
    page = open_viewer(CHANGED)
    whole = page.evaluate("surgeryViewer.svg(view)")
    root = ElementTree.fromstring(whole)
    texts = {text.text for text in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"image", "logits", "Identity", "Gelu", "layer.0"} <= texts
    page.evaluate("view.select([...view.scene.frames].find((item) => view.model.label(item) === 'layer.0'))")
    root = ElementTree.fromstring(page.evaluate("surgeryViewer.svg(view)"))
    texts = {text.text for text in root.iter("{http://www.w3.org/2000/svg}text")}
    assert "Gelu" in texts and "logits" not in texts


def test_the_command_that_extracts_a_region(open_viewer: Any) -> None:
    page = open_viewer(CHANGED)
    page.evaluate(f"view.go({row('layer.0/gelu')})")
    command = shlex.split(page.evaluate("surgeryViewer.extractCommand(view)"))
    assert command[:2] == ["surgery", "extract"]
    gemm, mul = row("layer.0/gemm"), row("layer.0/gelu/Mul")
    expected = ["--inputs", f"v{gemm}", "--outputs", f"v{mul}", "-o", "region.onnx"]
    assert command[2:] == ["result.onnx", *expected]
    # Its flags are those of the command.
    parser = argparse.ArgumentParser()
    extract.add_arguments(parser)
    read = parser.parse_args(command[2:])
    assert (read.model, read.output) == ("result.onnx", "region.onnx")


def test_a_region_is_extracted_from_the_file_of_the_state(open_viewer: Any) -> None:
    page = open_viewer(CHANGED)
    page.evaluate(f"view.setState(0), view.go({row('layer.0/gelu/Erf')})")
    command = shlex.split(page.evaluate("surgeryViewer.extractCommand(view)"))
    div, erf = row("layer.0/gelu/Div"), row("layer.0/gelu/Erf")
    assert command[2:] == ["changed.onnx", "--inputs", f"v{div}", "--outputs", f"v{erf}", "-o", "region.onnx"]
    # The graph after a step in between is in no file.
    page.evaluate("view.setState(1)")
    assert page.evaluate("surgeryViewer.extractCommand(view)") is None
    for name in ("Copy command that extracts", "Copy extract command"):
        page.get_by_role("button", name=name).click()
        page.locator("[role=status]", has_text="No file holds the graph after this step").wait_for(state="attached")
        page.evaluate("view.announce('')")


@pytest.mark.parametrize("text", [*drawings.HOSTILE[:4], "a'b\\c\x03\nrm -rf x\r", "\x85\x9bé$HOME"])
def test_no_control_character_is_in_a_command(open_viewer: Any, text: str) -> None:
    page = open_viewer(CHANGED)
    word = page.evaluate("(text) => surgeryViewer.quote(text)", text)
    assert word.isprintable()
    printed = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True)
    assert printed.stdout == text.encode()


def test_names_are_quoted_for_the_shell(open_viewer: Any) -> None:
    page = open_viewer(drawings.hostile())
    page.evaluate("view.go(1)")
    command = shlex.split(page.evaluate("surgeryViewer.extractCommand(view)"))
    assert command[command.index("--inputs") + 1] == drawings.HOSTILE[0]
    assert command[command.index("--outputs") + 1] == drawings.HOSTILE[1]
    assert command[-2:] == ["-o", "region.onnx"]


@pytest.mark.parametrize(
    "width, scheme",
    [
        (1280, "light"),
        (360, "dark"),
        pytest.param(1280, "dark", marks=pytest.mark.slow),
        pytest.param(360, "light", marks=pytest.mark.slow),
    ],
)
def test_the_page_is_accessible(open_viewer: Any, scheme: str, width: int) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = open_viewer(CHANGED, color_scheme=scheme, width=width)
    found = []
    for step in ("1", f"view.go({row('layer.0/gelu')})", "view.showSide(true), view.sidebar.pick('outline')"):
        page.evaluate(step)
        if step == "1" or width > 1000:
            page.get_by_role("button", name="Legend").click()
        result = axe.Axe().run(page).response
        found += [(each["id"], each["nodes"][0]["html"][:200]) for each in result["violations"]]
    assert found == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colors_of_the_canvas_have_contrast(open_viewer: Any, scheme: str) -> None:
    page = open_viewer(CHANGED, color_scheme=scheme)
    palette = page.evaluate("({...view.palette})")

    def light(color: str) -> float:
        parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(one: str, other: str) -> float:
        low, high = sorted([light(one), light(other)])
        return (high + 0.05) / (low + 0.05)

    for family in palette["families"]:
        assert contrast(palette["text"], family["fill"]) >= 7
        assert contrast(palette["muted"], family["fill"]) >= 4.5
    for name in ("added", "removed", "changed", "accent", "muted", "text"):
        for ground in ("bg", "surface", "surface2"):
            assert contrast(palette[name], palette[ground]) >= 4.5, (name, ground)


def test_forced_colors_use_the_system_colors(open_viewer: Any) -> None:
    page = open_viewer(CHANGED, forced_colors="active")
    assert page.evaluate("view.palette.isForced")
    assert page.evaluate("new Set(view.palette.families.map((family) => family.fill)).size") == 1


def test_the_theme_of_the_page_is_followed(open_viewer: Any) -> None:
    page = open_viewer(CHANGED)
    light = page.evaluate("view.palette.bg")
    page.evaluate(
        "document.documentElement.dataset.theme = 'dark', window.dispatchEvent(new CustomEvent('surgery:theme'))"
    )
    assert page.evaluate("view.palette.isDark") and page.evaluate("view.palette.bg") != light


def test_the_page_fits_a_phone_screen(open_viewer: Any) -> None:
    page = open_viewer(CHANGED, width=360, height=740, has_touch=True, is_mobile=True, device_scale_factor=2)
    page.evaluate(f"view.go({row('layer.0/gelu')})")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    box = page.get_by_role("complementary", name="Details").bounding_box()
    assert box["x"] == 0 and box["width"] == 360 and box["y"] > 200
    # The selected node is above the sheet.
    x, y = page.evaluate("view.camera.toScreen(view.scene.x[view.selected], view.scene.y[view.selected])")
    assert 0 <= x < 360 and 0 < y + page.evaluate("view.canvas.getBoundingClientRect().top") < box["y"]
    wide = page.evaluate(
        "[...document.querySelectorAll('.sv-toolbar > *, .sv-timeline > *')].filter((each) =>"
        " each.getBoundingClientRect().right > 361).map((each) => each.className)"
    )
    assert wide == []


@pytest.mark.parametrize(
    "name, width, height, options",
    [("light", 1000, 640, {}), ("dark", 1000, 640, {"color_scheme": "dark"}), ("phone", 360, 640, {})],
)
def test_pictures(
    open_viewer: Any, browser: Any, request: Any, name: str, width: int, height: int, options: Any
) -> None:
    page = open_viewer(CHANGED, width=width, height=height, **options)
    page.evaluate(f"view.go({row('layer.0/gelu')})")
    page.wait_for_timeout(100)
    # Letters look different with the fonts of each machine.
    compare(browser, page.screenshot(), PICTURES / f"viewer-{name}.png", request.config.getoption("--bless"), 0.08)


COUNTED = """
(zooms) => {
    const names = [
        ...["arc", "bezierCurveTo", "fill", "fillRect", "fillText"],
        ...["lineTo", "quadraticCurveTo", "rect", "roundRect", "stroke"],
    ];
    let calls = 0;
    for (const name of names) {
        const original = CanvasRenderingContext2D.prototype[name];
        CanvasRenderingContext2D.prototype[name] = function (...given) { calls++; return original.apply(this, given); };
    }
    return zooms.map((zoom) => {
        view.camera.set(view.scene.width / 2, view.scene.height / 2, zoom);
        calls = 0;
        view.paint(performance.now());
        return calls;
    });
}
"""
"""How often the canvas is called to paint one frame, at several zooms."""


def work(page: Any) -> list[int]:
    return list(page.evaluate(COUNTED, [0.02, 0.15, 0.6, 1.5]))


def test_the_work_of_a_frame_depends_on_visible_nodes_only(open_viewer: Any) -> None:
    some, many = (work(open_viewer(drawings.flat(count))) for count in (10_000, 20_000))
    assert max(some) < 10_000
    assert max(many) < 1.1 * max(some)
    assert many[-1] < 600  # a screen of legible boxes


@pytest.mark.slow
@pytest.mark.parametrize("make", [drawings.flat, drawings.grouped])
def test_a_frame_of_a_hundred_thousand_nodes(open_viewer: Any, make: Any) -> None:
    page = open_viewer(make(100_000))
    page.evaluate("view.setAll(true)")
    assert max(work(page)) < 10_000
