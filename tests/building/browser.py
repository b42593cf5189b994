"""A headless Chromium, controlled over two pipes."""

import base64
import json
import os
import select
import shutil
import subprocess
from functools import cache

PATIENCE = 120.0


@cache
def chromium():
    """Return the command of a Chromium that starts, or None; Ubuntu has one that does not."""
    for name in ("chromium", "chromium-browser"):
        command = shutil.which(name)
        if (
            command
            and not subprocess.run(
                [command, "--version"], capture_output=True, timeout=PATIENCE, check=False
            ).returncode
        ):
            return command
    return None


class Browser:
    """One tab of Chromium."""

    def __init__(self, profile):
        child_in, self._out = os.pipe()
        self._in, child_out = os.pipe()

        def place_pipes():
            spare = [os.dup(child_in), os.dup(child_out)]
            os.dup2(spare[0], 3)
            os.dup2(spare[1], 4)

        self._process = subprocess.Popen(
            [chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-dev-shm-usage", "--remote-debugging-pipe", f"--user-data-dir={profile}",
             "about:blank"],
            preexec_fn=place_pipes, pass_fds=(3, 4),  # noqa: PLW1509  it only moves two descriptors
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(child_in)
        os.close(child_out)
        self._number, self._buffer, self._session, self.events = 0, b"", None, []
        (page,) = [
            target
            for target in self.ask("Target.getTargets")["targetInfos"]
            if target["type"] == "page"
        ]
        attached = self.ask("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method, **parameters):
        self._number += 1
        request = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            request["sessionId"] = self._session
        os.write(self._out, json.dumps(request).encode() + b"\0")
        while True:
            message = self._receive()
            if message.get("id") == self._number:
                assert "error" not in message, message
                return message["result"]
            self.events.append(message)

    def _receive(self):
        while b"\0" not in self._buffer:
            assert select.select([self._in], [], [], PATIENCE)[0], "the browser is silent"
            piece = os.read(self._in, 1 << 20)
            assert piece, "the browser went away"
            self._buffer += piece
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def show(self, path, width, scheme):
        """Open a file in a window of this width; `scheme` is `light` or `dark`."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900,
                 deviceScaleFactor=1, mobile=False)  # fmt: skip
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", features=features)
        self.ask("Page.navigate", url=path.as_uri())
        while self.run("document.readyState + location.protocol") != "completefile:":
            pass

    def run(self, script):
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def picture(self, path):
        answer = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def close(self):
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)
