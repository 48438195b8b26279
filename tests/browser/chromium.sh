#!/bin/sh
# Chromium for the browser tier: found, or installed where that asks for no password. Without one the tier is skipped, loudly;
# with CI=true that is a failure.
# $1: the Python that has Playwright, which brings a Chromium of its own where the system has none to offer.
set -u
python="${1:-python3}"

# One that answers: Ubuntu's chromium-browser may be a stub that only asks for a snap.
on_path() {
  for name in chromium chromium-browser google-chrome google-chrome-stable; do
    command -v "$name" >/dev/null && "$name" --version >/dev/null 2>&1 && return 0
  done
  return 1
}
of_playwright() {
  "$python" -c 'import os, sys
from playwright.sync_api import sync_playwright
with sync_playwright() as p: sys.exit(not os.path.exists(p.chromium.executable_path))' 2>/dev/null
}

on_path && exit 0
of_playwright && exit 0

as_root=""
if [ "$(id -u)" = 0 ]; then as_root="env"; elif sudo -n true 2>/dev/null; then as_root="sudo -n env"; fi

if [ -n "$as_root" ] && command -v apt-get >/dev/null; then
  echo "Chromium is missing; installing it with apt-get."
  quiet="DEBIAN_FRONTEND=noninteractive apt-get -yq -o DPkg::Lock::Timeout=300"
  $as_root $quiet update >/dev/null || true  # one source that does not answer must not stop the others
  $as_root $quiet install chromium || true
  on_path && exit 0
fi

echo "No package of this system gives a Chromium that runs; asking Playwright for its own."
with_deps=""
[ "$(id -u)" = 0 ] && with_deps="--with-deps"
"$python" -m playwright install $with_deps chromium || true
of_playwright && exit 0

cat >&2 <<'NOTE'
*******************************************************************************
* NO BROWSER TIER: no Chromium, and none could be installed from here.        *
* Install one so that `chromium` is on the PATH (Debian: apt-get install      *
* chromium) and run `make browser` again.                                     *
*******************************************************************************
NOTE
[ "${CI:-}" != true ]
