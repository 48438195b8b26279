# Says what is wrong with the environment in a folder, and nothing if it can be used or is not there:
#   sh scripts/stale_environment.sh .venv [the Python that was asked for]
folder=$1
python=$2
version="import sys; print(*sys.version_info[:2])"
enough="import sys; sys.exit(sys.version_info < (3, 11))"

[ -d "$folder" ] || exit 0
if ! "$folder/bin/python" -c "$enough" 2>/dev/null; then
  echo "has no Python 3.11 or newer"
elif [ -n "$python" ] && [ "$("$python" -c "$version")" != "$("$folder/bin/python" -c "$version")" ]; then
  echo "has another Python than $python"
elif ! grep -qsF "$(cd "$folder" && pwd -P)/bin/python" "$folder/bin/pip"; then
  echo "was made in another folder, or has no pip"
fi
