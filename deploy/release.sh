#!/bin/sh
# Build the release that pyproject.toml names, and try it in a temporary environment. Uploads
# nothing: it prints the commands that upload and tag.
#   sh deploy/release.sh
set -eu
cd "$(dirname "$0")/.."
. deploy/setup.sh

fail() {
    echo "no release: $1" >&2
    exit 1
}

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
changes=$(git status --porcelain) || fail "this is no clone"
[ -z "$changes" ] || fail "commit these files, or remove them:
$changes"
grep -q "^## $version ([0-9-]*)\$" deploy/docs/changelog.md \
    || fail "deploy/docs/changelog.md needs a heading '## $version (date)'"
[ -z "$(git tag --list "v$version")" ] \
    || fail "the tag v$version exists; write another version into pyproject.toml"

set_up
python=$(find_python)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
trap 'exit 130' INT TERM

# So that everybody can build the same bytes from this commit.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
.venv/bin/python -m hatchling build -d "$place/dist" > "$place/build.said" 2>&1 \
    || { cat "$place/build.said" >&2; fail "the build failed"; }
archive=dist/brainsurgeon-$version.tar.gz
wheel=dist/brainsurgeon-$version-py3-none-any.whl

"$python" -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    --require-hashes -r deploy/requirements.txt
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    --no-deps "$place/$wheel"

# Prune and restore sessions of an agent in an empty home.
sessions=$place/home/.openclaw/agents
samples=tests/samples/openclaw/2026.7.35/agents
mkdir -p "$place/home/.openclaw"
cp -R "$samples" "$sessions"
find "$sessions" -type f -exec touch -t 202601010000 {} +
run() {
    env -i HOME="$place/home" PATH="$PATH" "$place/venv/bin/brainsurgeon" "$@"
}
said=$(run --version)
[ "$said" = "brainsurgeon $version" ] || fail "the wheel says that it is '$said'"
run scan
grep -qr '\[\[extracted-' "$sessions" || fail "the scan extracted nothing"
run restore --all --pristine > "$place/restore.said" \
    || { cat "$place/restore.said" >&2; fail "the sessions cannot be restored"; }
diff -r "$samples" "$sessions" || fail "the restored sessions are not as before"

mkdir -p dist
mv "$place/$archive" "$place/$wheel" dist/
cat <<END

$archive and $wheel are built and tried. To upload and tag them:

  twine upload $archive $wheel
  git tag --annotate v$version --message "brainsurgeon $version" && git push origin v$version
END
