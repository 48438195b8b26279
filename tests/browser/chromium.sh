#!/bin/sh
# Chromium for the browser tier: found, or installed where that asks for no password. Without one the tier is skipped, loudly.
set -u

found() { command -v chromium || command -v chromium-browser || command -v google-chrome || command -v google-chrome-stable; }

found >/dev/null && exit 0

if command -v apt-get >/dev/null; then
  if [ "$(id -u)" = 0 ]; then as_root="env"; elif sudo -n true 2>/dev/null; then as_root="sudo -n env"; else as_root=""; fi
  if [ -n "$as_root" ]; then
    echo "Chromium is missing; installing it with apt-get."
    $as_root apt-get update -q >/dev/null && $as_root DEBIAN_FRONTEND=noninteractive apt-get install -yq chromium
  fi
fi

found >/dev/null || cat >&2 <<'NOTE'
*******************************************************************************
* BROWSER TIER SKIPPED: no Chromium, and none could be installed from here.   *
* Install one so that `chromium` is on the PATH (Debian: apt-get install      *
* chromium) and run `make browser` again.                                     *
*******************************************************************************
NOTE
exit 0
