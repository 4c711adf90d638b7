"""A browser to drive: headless Chromium over --remote-debugging-pipe, with Python's standard library only.

Messages are JSON ended by a NUL (file descriptors 3 and 4 of the browser); one session on one tab. Everything that the
page asks for from the network, says on its console, throws, or that its policy refuses is kept to be looked at."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


def find_browser():
    """The browser's program, or None."""
    names = [os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"]
    return next((shutil.which(name) for name in names if name and shutil.which(name)), None)


def above(descriptor):
    """The same file under a number that is not in the way of 3 and 4."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return moved


class Browser:
    def __init__(self, program, width=1280, height=900):
        # In the test's own folder, which the next run clears: a killed test leaves it behind.
        self.profile = tempfile.mkdtemp(prefix="browser-", dir=os.getcwd())
        to_browser, self.write = map(above, os.pipe())
        self.read, from_browser = map(above, os.pipe())
        # Root has no sandbox; containers have a small /dev/shm.
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                   "--disable-extensions", "--disable-background-networking", "--disable-component-update",
                   "--disable-sync", "--no-default-browser-check", "--disable-features=Translate,MediaRouter",
                   "--remote-debugging-pipe", f"--user-data-dir={self.profile}", "about:blank"]
        # The browser wants its ends as 3 and 4. A shell moves them: no code of ours runs between fork and exec.
        moved = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser} {to_browser}<&- {from_browser}>&-'
        self.process = subprocess.Popen(["bash", "-c", moved, program, *options], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        pass_fds=(to_browser, from_browser), start_new_session=True)
        os.close(to_browser)
        os.close(from_browser)
        self.buffer, self.number, self.events, self.answers = b"", 0, [], {}
        self.session = None
        tab = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=tab, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log", "Audits"):
            self.send(f"{domain}.enable")
        self.size(width, height)

    def pump(self, seconds):
        """Take what has come, waiting for at most so long for the first of it."""
        if not select.select([self.read], [], [], max(0, seconds))[0]:
            return
        part = os.read(self.read, 1 << 20)
        if not part:
            raise RuntimeError("the browser went away")
        self.buffer += part
        *whole, self.buffer = self.buffer.split(b"\0")
        for text in whole:
            message = json.loads(text)
            if "id" in message:
                self.answers[message["id"]] = message
            else:
                self.events.append(message)

    def send(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.write, data):]
        end = time.monotonic() + 60
        while self.number not in self.answers:
            if time.monotonic() > end:
                raise RuntimeError(f"no answer to {method}")
            self.pump(1)
        answer = self.answers.pop(self.number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def size(self, width, height, ratio=1, touch=False):
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=ratio,
                  mobile=touch)
        self.send("Emulation.setTouchEmulationEnabled", enabled=touch, maxTouchPoints=5 if touch else 1)

    def theme(self, name):
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def open(self, url):
        """Another page, or the same one anew where the address differs in its hash only."""
        self.send("Page.navigate", url="about:blank")
        self.send("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && !!window.ckpt && window.ckpt.redrawMs > 0")

    def run(self, expression):
        """The value of an expression in the page."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression[:300]}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, expression, seconds=60):
        end = time.monotonic() + seconds
        while not self.run(expression):
            if time.monotonic() > end:
                raise RuntimeError(f"never came true: {expression}")
            time.sleep(0.02)

    def settle(self):
        """Until what was asked for is drawn."""
        self.run("new Promise(done => { const look = () => window.ckpt?.busy ? requestAnimationFrame(look) : done(1); "
                 "requestAnimationFrame(look); })")

    def mouse(self, kind, x, y, **more):
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def hover(self, x, y):
        self.mouse("mouseMoved", x, y)
        self.settle()

    def click(self, x, y):
        self.drag(x, y, x, y)

    def drag(self, x, y, to_x, to_y, modifiers=0):
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, button="left", clickCount=1, modifiers=modifiers)
        if (x, y) != (to_x, to_y):
            self.mouse("mouseMoved", to_x, to_y, button="left", buttons=1, modifiers=modifiers)
        self.mouse("mouseReleased", to_x, to_y, button="left", clickCount=1, modifiers=modifiers)
        self.settle()

    def wheel(self, x, y, down, modifiers=0):
        self.mouse("mouseWheel", x, y, deltaX=0, deltaY=down, modifiers=modifiers)
        self.settle()

    def key(self, key, modifiers=0):
        text = key if len(key) == 1 else ""
        codes = {"Escape": 27, "Enter": 13, "ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35, "Tab": 9}
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, text=text if kind == "keyDown" else "",
                      modifiers=modifiers, windowsVirtualKeyCode=codes.get(key, 0))
        self.settle()

    def type(self, words):
        self.send("Input.insertText", text=words)
        self.settle()

    def touch(self, kind, points):
        self.send("Input.dispatchTouchEvent", type=kind, touchPoints=[{"x": x, "y": y} for x, y in points])

    def picture(self, path, full=True):
        data = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=full)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def requests(self):
        """Everything asked for but the page itself."""
        asked = [event["params"]["request"]["url"] for event in self.events
                 if event["method"] == "Network.requestWillBeSent" and event["params"]["type"] != "Document"]
        asked += [event["params"]["url"] for event in self.events if event["method"] == "Network.webSocketCreated"]
        return asked

    def complaints(self):
        """Console errors and warnings, exceptions, refusals of the policy, dialogs."""
        found = []
        for event in self.events:
            method, params = event["method"], event.get("params", {})
            if method == "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                found.append(details.get("exception", {}).get("description", details["text"]))
            elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                found.append(str(params["args"]))
            elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(params["entry"]["text"])
            elif method == "Audits.issueAdded" and params["issue"]["code"] != "GenericIssue":  # says how we navigate
                found.append(json.dumps(params["issue"]))
            elif method == "Page.javascriptDialogOpening":
                found.append("dialog: " + params["message"])
        return found

    def close(self):
        try:
            self.session = None
            self.send("Browser.close")
        except (RuntimeError, OSError):
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.write)
        os.close(self.read)
        shutil.rmtree(self.profile, ignore_errors=True)
