"""Programs that were written for LibreTranslate work unchanged: its two clients for Python, and curl."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from regard.translation.translator import Translator

TEXT = "Tengo dos gatos."


@pytest.fixture(scope="module")
def translation() -> str:
    return Translator.open("es-en-tiny").translate([TEXT])[0].text


def test_libretranslatepy(address, translation):
    api = pytest.importorskip("libretranslatepy").LibreTranslateAPI(address, "a key")
    assert api.translate(TEXT, "es", "en") == translation
    assert api.detect(TEXT)[0]["language"] == "es"
    assert {"code": "es", "name": "Spanish", "targets": ["en"]} in api.languages()


def test_deep_translator(address, translation):
    translators = pytest.importorskip("deep_translator")
    client = translators.LibreTranslator(
        source="es", target="en", api_key="a key", custom_url=address
    )
    assert client.translate(TEXT) == translation
    assert client.translate_batch([TEXT, "¿Dónde está?"])[0] == translation
    with pytest.raises(translators.exceptions.ServerException):
        translators.LibreTranslator(
            source="fr", target="en", api_key="a key", custom_url=address
        ).translate("Bonjour")


@pytest.mark.parametrize(
    "arguments",
    [
        [
            "-H",
            "Content-Type: application/json",
            "-d",
            '{"q": "%s", "source": "es", "target": "en"}',
        ],
        ["-d", "q=%s", "-d", "source=es", "-d", "target=en"],
        ["--data-urlencode", "q=%s", "-d", "source=es&target=en&format=text&api_key="],
        ["-F", "q=%s", "-F", "source=auto", "-F", "target=en"],
    ],
    ids=["json", "form", "encoded", "multipart"],
)
def test_curl(address, translation, arguments):
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed")
    if "-F" in arguments:
        pytest.importorskip("python_multipart")
    filled = [each % TEXT if "%s" in each else each for each in arguments]
    command = [curl, "-s", "-X", "POST", f"{address}translate", *filled]
    answer = subprocess.run(command, capture_output=True, timeout=60, check=True)
    assert json.loads(answer.stdout)["translatedText"] == translation


def test_curl_with_accents_that_are_not_encoded(address):
    """`curl -d` sends UTF-8 as it is."""
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed")
    expected = Translator.open("es-en-tiny").translate(["¿Dónde está el niño?"])[0].text
    command = [curl, "-s", "-d", "q=¿Dónde está el niño?", "-d", "source=es", "-d", "target=en"]
    answer = subprocess.run([*command, f"{address}translate"], capture_output=True, check=True)
    assert json.loads(answer.stdout)["translatedText"] == expected
