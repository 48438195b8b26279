#!/usr/bin/env bash
# Runs a command as on a machine on which nobody has worked: no browser, no Node, an empty home, no caches.
#   bash scripts/bare.sh make unit
# Programs are hidden by mounts that this command alone sees. Where the system grants none, it says so and runs nothing.
set -euo pipefail

if [ "${1:-}" != inside ]; then
  room=$(mktemp -d)
  trap 'rm -rf "$room"' EXIT
  for namespace in "unshare --mount" "unshare --map-root-user --mount"; do
    if $namespace true 2>/dev/null; then
      $namespace bash "$0" inside "$room" "$@"
      exit
    fi
  done
  echo "NOT RUN: this system grants no mount namespace, so a bare machine cannot be shown here." >&2
  exit
fi
room=$2
shift 2

mkdir "$room/home" "$room/empty"
touch "$room/file" # it cannot be executed, so it is no program
for name in chromium chromium-browser google-chrome google-chrome-stable chrome msedge firefox node npm npx; do
  for path in $(type -aP "$name" | sort -u); do
    mount --bind "$room/file" "$(readlink -f "$path")" # where a link leads
  done
done
for folder in /usr/lib/chromium /opt/*/chrome; do
  if [ -d "$folder" ]; then mount --bind "$room/empty" "$folder"; fi
done
# where pip and npm find packages is a fact of the machine, not of who worked on it
for settings in .npmrc .config/pip/pip.conf .pip/pip.conf; do
  if [ -f "$HOME/$settings" ]; then install -D -m 600 "$HOME/$settings" "$room/home/$settings"; fi
done
unset BROWSER_PATH DISPLAY HF_HOME HF_HUB_CACHE IPYTHONDIR JUPYTER_CONFIG_DIR JUPYTER_PATH PLAYWRIGHT_BROWSERS_PATH \
  SPECLAB_CACHE XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME
export HOME="$room/home"
"$@"
