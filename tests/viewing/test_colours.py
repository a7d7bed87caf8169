"""One scale in two themes: it moves steadily away from its paper, and ink stays readable."""

from __future__ import annotations

import pytest

from regard.viewing import colours

themes = pytest.mark.parametrize("name", list(colours.THEMES))


def _contrast(item: str, background: str) -> float:
    low, high = sorted(colours.luminance(colours.rgb(colour)) for colour in (item, background))
    return (high + 0.05) / (low + 0.05)


@themes
def test_more_weight_is_always_further_from_the_paper(name: str) -> None:
    theme = colours.theme(name)
    brightness = [colours.luminance(theme.shade(step / 100)) for step in range(101)]
    darker = name == "light"
    assert brightness == sorted(brightness, reverse=darker)
    assert len(set(brightness)) == 101


@themes
def test_texts_can_be_read(name: str) -> None:
    theme = colours.theme(name)
    assert _contrast(theme.ink, theme.paper) > 12
    assert _contrast(theme.faint, theme.paper) > 4.5
    for step in range(101):
        shade = colours.hexadecimal(theme.shade(step / 100))
        assert _contrast(theme.ink_on(step / 100), shade) > 4.3


def test_shares_outside_are_clamped() -> None:
    theme = colours.theme("light")
    assert (theme.shade(-1), theme.shade(2)) == (theme.shade(0), theme.shade(1))


def test_an_unknown_theme_names_the_known() -> None:
    with pytest.raises(ValueError, match="choose from light, dark"):
        colours.theme("sepia")
