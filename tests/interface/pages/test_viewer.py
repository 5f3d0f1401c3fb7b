"""The viewer in Chromium: what is drawn, what can be opened, found and reached, and what is in the details."""

import itertools
import json
from typing import Any

import pytest
from support import drawings
from support.pictures import dots

pytestmark = pytest.mark.slow

CHANGED = drawings.changed()


def row(name: str) -> int:
    """Return the row of a node of `CHANGED`."""
    return CHANGED["nodes"]["name"].index(CHANGED["strings"].index(name))


def shown(page: Any) -> set[str]:
    """Return the labels of all boxes that are drawn, groups in brackets."""
    return set(
        page.evaluate(
            "[...view.scene.leaves].map((item) => view.model.isGroup(item)"
            " ? `[${view.model.label(item)}]` : view.model.label(item))"
        )
    )


def place(page: Any, item: int) -> dict[str, float]:
    """Return the middle of an item on the screen."""
    return page.evaluate(
        "(item) => { const [l, t, r, b] = view.scene.rectangle(item), box = view.canvas.getBoundingClientRect();"
        " const [x, y] = view.camera.toScreen((l + r) / 2, (t + b) / 2); return {x: x + box.left, y: y + box.top}; }",
        item,
    )


def selected(page: Any) -> int:
    return page.evaluate("view.selected")


def group_item(page: Any, name: str) -> int:
    text = "(name) => view.model.n + [...view.model.groupName].findIndex((at) => view.model.strings[at] === name)"
    return page.evaluate(text, name)


def test_a_small_graph_is_expanded_as_far_as_legible(open_viewer: Any) -> None:
    page = open_viewer(CHANGED)
    assert shown(page) >= {"image", "Gemm", "Div", "Erf", "Mul", "Gelu", "LayerNormalization", "Identity", "logits"}
    left, top, right, bottom = page.evaluate("view.camera.view()")
    width, height = page.evaluate("[view.scene.width, view.scene.height]")
    assert left <= 0 and top <= 0 and right >= width and bottom >= height


def test_a_large_graph_stays_closed_and_whole(open_viewer: Any) -> None:
    page = open_viewer(drawings.grouped(5_000))
    assert len(shown(page)) < 60
    assert all(name.startswith("[") for name in shown(page))
    assert page.evaluate("view.camera.k") >= 0.5


def test_boxes_do_not_overlap_when_groups_are_opened(open_viewer: Any) -> None:
    page = open_viewer(drawings.grouped(1_000))
    page.evaluate("view.setAll(true)")
    boxes = page.evaluate("[...view.scene.leaves].map((item) => view.scene.rectangle(item))")
    assert len(boxes) == 1_000
    boxes.sort(key=lambda box: (box[1], box[0]))
    for box, after in itertools.pairwise(boxes):
        assert after[1] >= box[3] or after[0] >= box[2]
    inside = page.evaluate(
        "[...view.scene.leaves].every((item) => { const frame = view.model.n + view.model.group[item];"
        " const [a, b, c, d] = view.scene.rectangle(item), [l, t, r, u] = view.scene.rectangle(frame);"
        " return a >= l && b >= t + 20 && c <= r && d <= u; })"
    )
    assert inside


def test_a_row_is_pushed_apart_around_an_opened_group_and_keeps_its_order(open_viewer: Any) -> None:
    made = drawings.Maker()
    before = made.node("Add", "left", 0, 0, 50)
    group = made.group("wide", 0, order=1, x=160)
    for k in range(4):
        made.node("LayerNormalization", f"n{k}", 0, k, 80 + k * 160, group)
    after = made.node("Mul", "right", 0, 2, 270)
    below = made.node("Sub", "below", 1, 0, 160)
    made.edge(before, below, "v")
    page = open_viewer(made.document("row"))
    page.evaluate("view.openOnly([])")
    closed = page.evaluate("[view.scene.x[0], view.scene.x[5]]")
    page.evaluate("view.toggle(0)")
    (left, _, left_end, _), (frame, _, frame_end, _), (right, *_) = page.evaluate(
        f"[{before}, view.model.n, {after}].map((item) => view.scene.rectangle(item))"
    )
    assert left_end + 16 <= frame + 0.01 and frame_end + 16 <= right + 0.01
    assert right - left > closed[1] - closed[0]
    # It is the frame that stays in the middle: both neighbors made room.
    assert (left + right) / 2 == pytest.approx((frame + frame_end) / 2, abs=40)
    page.evaluate("view.toggle(0)")
    assert page.evaluate("[view.scene.x[0], view.scene.x[5]]") == closed


def test_edges_of_closed_groups_are_drawn_once_and_counted(open_viewer: Any) -> None:
    made = drawings.Maker()
    group = made.group("g", 0)
    inside = [made.node("Add", f"a{k}", 0, k, 60 + 80 * k, group) for k in range(3)]
    out = made.node("Concat", "all", 1)
    for node in inside:
        made.edge(node, out, f"v{node}")
    page = open_viewer(made.document("lifted"))
    page.evaluate("view.openOnly([])")
    assert page.evaluate("[view.scene.edges.count, view.scene.edges.many[0]]") == [1, 3]
    page.evaluate("view.toggle(0)")
    assert page.evaluate("[view.scene.edges.count, view.scene.edges.many[0]]") == [3, 1]


def test_long_edges_pass_boxes_at_a_distance(open_viewer: Any) -> None:
    made = drawings.Maker()
    nodes = [made.node("LayerNormalization", f"n{k}", k, 0, 100) for k in range(6)]
    for source, target in itertools.pairwise(nodes):
        made.edge(source, target, f"v{source}")
    made.edge(nodes[0], nodes[-1], "skip")
    page = open_viewer(made.document("skip"))
    path = page.evaluate("view.scene.routes.path(5)")
    left, _, right, _ = page.evaluate("view.scene.rectangle(2)")
    xs = [x for x, y in zip(path[::2], path[1::2], strict=True) if 60 < y < 250]
    assert xs and all(x < left or x > right for x in xs)


def test_removed_and_added_nodes_are_marked(open_viewer: Any, browser: Any) -> None:
    page = open_viewer(CHANGED)
    status = page.evaluate(
        "Object.fromEntries([...view.scene.leaves].map((i) => [view.model.label(i), view.scene.status[i]]))"
    )
    assert (status["Gelu"], status["Div"], status["Identity"]) == (2, 4, 4)
    # The head, not the one in the layer, was altered.
    assert page.evaluate(f"view.scene.status[{row('head')}]") == 3

    def share(name: str, is_one: Any) -> float:
        """Return the share of pixels of a color along the left edge of a box."""
        middle = place(page, row(name))
        left = page.evaluate("(node) => view.camera.toScreen(view.scene.x[node], 0)[0]", row(name))
        left += page.evaluate("view.canvas.getBoundingClientRect().left")
        clip = {"x": round(left) - 1, "y": middle["y"] - 6, "width": 3, "height": 12}
        seen = dots(browser, page.screenshot(clip=clip))
        return max(sum(is_one(*dot) for dot in seen[k::3]) / len(seen[k::3]) for k in range(3))

    # A thick green line, and a red one with gaps.
    assert share("layer.0/gelu", lambda r, g, b: g > r + 30) == 1
    assert 0.2 < share("layer.0/gelu/Div", lambda r, g, b: r > g + 60) < 0.9
    assert share("layer.0/norm", lambda r, g, b: r > g + 60) == 0


def test_the_removed_are_hidden_on_request(open_viewer: Any) -> None:
    page = open_viewer(CHANGED)
    page.get_by_role("button", name="Removed nodes").click()
    assert not shown(page) & {"Div", "Erf", "Identity"}
    assert "Gelu" in shown(page)
    page.get_by_role("button", name="Removed nodes").click()
    assert shown(page) >= {"Div", "Erf", "Identity"}


def test_the_slider_shows_each_state_without_moving_nodes(open_viewer: Any) -> None:
    page = open_viewer(CHANGED)
    before = page.evaluate("[...view.scene.x, ...view.scene.y]")
    slider = page.get_by_role("slider", name="State of the graph")
    slider.focus()
    page.keyboard.press("Home")
    assert "Gelu" not in shown(page)
    assert page.evaluate(f"view.scene.status[{row('layer.0/gelu/Div')}]") == 1
    page.keyboard.press("ArrowRight")
    assert slider.get_attribute("aria-valuetext").startswith("after step 1: fuse-gelu")
    assert page.evaluate(f"view.scene.status[{row('layer.0/gelu')}]") == 2
    assert page.evaluate(f"view.scene.status[{row('tail')}]") == 1
    assert page.evaluate("[...view.scene.x, ...view.scene.y]") == before
    page.get_by_role("button", name="Next state").click()
    # The second step that changed the model was the fourth of the run.
    assert slider.get_attribute("aria-valuetext").startswith("after step 4: drop-identity")
    assert page.evaluate(f"view.scene.status[{row('tail')}]") == 4
    page.get_by_label("Show changes").select_option("step")
    # Compared with the step before, what an earlier step did is no change.
    assert page.evaluate(f"view.scene.status[{row('layer.0/gelu')}]") == 1
    assert page.evaluate(f"view.scene.status[{row('tail')}]") == 4
    assert not page.evaluate(f"view.scene.shown[{row('layer.0/gelu/Div')}]")


def test_a_click_selects_a_node_and_shows_its_origins(open_viewer: Any) -> None:
    page = open_viewer(CHANGED)
    at = place(page, row("layer.0/gelu"))
    page.mouse.click(at["x"], at["y"])
    assert selected(page) == row("layer.0/gelu")
    panel = page.get_by_role("complementary", name="Details")
    text = panel.inner_text()
    for part in (
        "Gelu",
        "Made by fuse-gelu",
        "step 1",
        "98.3 k",
        "120 µs",
        "1.2 % of the tolerance, in the step fuse-gelu",
        "Fuse Gelu.",
        "none",
    ):
        assert part in text
    panel.get_by_role("button", name="Erf layer.0/gelu/Erf removed").click()
    assert selected(page) == row("layer.0/gelu/Erf")
    assert "Removed by fuse-gelu" in panel.inner_text()
    panel.get_by_role("button", name="Gelu layer.0/gelu added").click()
    assert selected(page) == row("layer.0/gelu")


def test_a_removed_node_without_a_successor_is_reported(open_viewer: Any) -> None:
    page = open_viewer(CHANGED)
    page.evaluate(f"view.go({row('tail')})")
    text = page.get_by_role("complementary", name="Details").inner_text()
    assert "Removed by drop-identity step 4" in text and "Nothing takes its place." in text


@pytest.mark.parametrize(
    "query, first, total",
    [
        ("gelu", "layer.0/gelu", 8),
        ("op:erf", "layer.0/gelu/Erf", 2),
        ("pass:drop-identity", "tail", 1),
        ("shape:1x128x768 op:layernorm", "layer.0/norm", 2),
        ("is:removed op:mul", "layer.0/gelu/Mul", 2),
        ("layer.1 op:gemm", "layer.1/gemm", 1),
    ],
)
def test_search_by_name_operator_pass_shape_and_change(open_viewer: Any, query: str, first: str, total: int) -> None:
    page = open_viewer(CHANGED)
    page.keyboard.press("/")
    page.keyboard.type(query)
    page.keyboard.press("ArrowDown")
    assert page.locator(".sv-results-note").inner_text() == f"{total} result" + ("s" if total > 1 else "")
    assert page.locator(".sv-result[aria-selected=true]").count() == 1
    page.keyboard.press("Enter")
    assert selected(page) == row(first)
    # What is in another instance of a repeat is shown with that instance.
    assert page.evaluate("view.scene.shown[view.selected]") == 1


def test_each_changed_node_is_reached_from_the_changes(open_viewer: Any) -> None:
    page = open_viewer(CHANGED)
    side = page.locator(".sv-changes")
    assert "2 × Div + Erf + Mul → Gelu" in side.inner_text()
    reached = page.evaluate(
        "surgeryViewer.changes(view.model).flatMap((pass) => pass.kinds.flatMap((kind) =>"
        " kind.sites.flatMap((site) => [...site.added, ...site.altered, ...site.removed])))"
    )
    nodes = CHANGED["nodes"]
    changed = {k for k in range(len(nodes["op"])) if nodes["born"][k] > 0 or nodes["died"][k] >= 0}
    assert set(reached) == changed | set(CHANGED["altered"]["node"])
    side.get_by_text("2 × Div + Erf + Mul → Gelu").click()
    side.get_by_role("button", name="layer.1/gelu", exact=True).click()
    assert selected(page) == row("layer.1/gelu")
    assert page.evaluate("view.lit.length") == 4
    visible = page.evaluate(
        "view.lit.every((item) => { const [l, t, r, b] = view.scene.rectangle(item), v = view.camera.view();"
        " return l >= v[0] && t >= v[1] && r <= v[2] && b <= v[3]; })"
    )
    assert visible


def test_the_changes_that_a_document_names_are_listed(open_viewer: Any) -> None:
    named = json.loads(json.dumps(CHANGED))
    named["strings"] += ["MatMul + Add -> Gemm", "fuse-gemm"]
    end = len(named["strings"])
    named["changes"] = {"state": [2], "what": [end - 2], "by": [end - 1], "nodes": [[row("tail"), row("head")]]}
    page = open_viewer(named)
    assert "fuse-gemm" in page.locator(".sv-changes").inner_text()
    page.locator(".sv-changes").get_by_role("button", name="MatMul + Add → Gemm").click()
    assert selected(page) == row("head")


def test_an_instance_of_a_repeat_is_chosen(open_viewer: Any) -> None:
    page = open_viewer(CHANGED)
    repeat = group_item(page, "layer.*")
    page.evaluate(f"view.select({repeat})")
    page.get_by_label("Instance", exact=True).select_option("1")
    assert page.evaluate(f"view.scene.shown[{row('layer.1/gelu')}]") == 1
    assert page.evaluate(f"view.scene.shown[{row('layer.0/gelu')}]") == 0
    page.get_by_role("button", name="Next instance").click()
    assert page.evaluate(f"view.scene.shown[{row('layer.0/gelu')}]") == 1


def test_text_of_models_is_escaped(open_viewer: Any) -> None:
    page = open_viewer(drawings.hostile())
    for node in range(len(drawings.HOSTILE)):
        page.evaluate(f"view.go({node})")
    page.get_by_role("button", name="Outline and changes").click()
    page.get_by_role("treeitem").first.click()
    page.keyboard.press("/")
    page.keyboard.type("<script")
    page.wait_for_selector(".sv-result")
    page.keyboard.press("Enter")
    assert page.evaluate("window.broken") is None
    # No element but those of the page and the viewer: nothing was parsed as markup.
    assert page.evaluate("document.querySelectorAll('img, .sv script').length") == 0
    assert page.evaluate("document.scripts.length") == 2
    svg = page.evaluate("view.select(-1), surgeryViewer.svg(view)")
    assert "<script" not in svg and "onerror='" not in svg
    text = page.locator(".sv").inner_text()
    for character in "\x1b\x07\u202e\u2066\u200b":
        assert character not in text and character not in svg


def test_marks_that_cannot_be_seen_are_written_out_and_long_names_cut(open_viewer: Any) -> None:
    page = open_viewer(drawings.hostile())
    labels = page.evaluate("[...Array(view.model.n).keys()].map((item) => view.model.label(item))")
    assert labels[4] == "abc\\u202egpj.exe\\u2066\\u200b"
    assert labels[3].startswith("\\u001b[31mred")
    assert max(map(len, labels)) <= 48
    page.evaluate("view.go(6)")
    panel = page.get_by_role("complementary", name="Details")
    assert len(panel.inner_text()) < 5_000
    panel.get_by_role("button", name="show all").first.click()
    assert "n" * 10_000 in panel.inner_text()
    panel.get_by_role("button", name="Copy all 10,000 characters").first.click()
    page.locator("[role=status]", has_text="Copied.").wait_for(state="attached")
