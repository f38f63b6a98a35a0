"""The browser rig: runs Python test modules inside Pyodide in headless Chromium.

`plugin` gives pytest an item per test, `session` is one loaded browser, `chromium` drives the
process, `inside` and the `web` folder are what runs in the browser.
"""
