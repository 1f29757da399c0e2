#!/bin/sh
# make deb: two Debian packages from a wheel of this clone and the wheels that it needs, in dist/: firearrow, and
# firearrow-console, whose libraries are Debian's.
#
# It is for the Debian release whose Python is that of .venv (make deb PYTHON=python3.11). All Python code is in a
# virtual environment, /usr/lib/firearrow, whose interpreter is Debian's: packages of pip and of Debian do not meet,
# but for two that are not always needed, of which it has links to Debian's.
# It has what broker and command line need; the Spark tools need pip in any case.
set -eu
cd "$(dirname "$0")/../.."
here=packaging/deb work=build/deb root=build/deb/root console=build/deb/console size_max=21504

fail() {
    echo "make deb: $1" >&2
    exit 1
}

missing=
for tool in dpkg-deb:dpkg strip:binutils gzip:gzip; do
    command -v "${tool%:*}" >/dev/null || missing="$missing ${tool#*:}"
done
[ -z "$missing" ] || fail "this machine lacks$missing: apt install$missing (Debian, Ubuntu), or your system's packages"
python=.venv/bin/python
minor=$($python -c 'import sys; print("%d.%d" % sys.version_info[:2])') || fail "there is no .venv: run make build"
case $minor in
    3.11) suite=bookworm release=12 ;;
    3.13) suite=trixie release=13 ;;
    *) fail "no Debian release has Python $minor: make clean, then make deb PYTHON=python3.11 (or python3.13)" ;;
esac
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || date +%s)}"
export SOURCE_DATE_EPOCH
if [ -n "${DEBEMAIL:-}" ]; then
    maintainer="${DEBFULLNAME:-$DEBEMAIL} <$DEBEMAIL>"
else
    maintainer=$(git log -1 --format='%an <%ae>' 2>/dev/null) || fail "set DEBFULLNAME and DEBEMAIL to your name and address"
fi

rm -rf "$work"
site=usr/lib/firearrow/lib/python$minor/site-packages
library=$root/$site
mkdir -p "$library" "$root/usr/lib/firearrow/bin" "$root/usr/bin" "$root/DEBIAN" dist

# the wheel, without modules of an earlier build that have another name now, and without what only debuggers read
rm -rf build/lib.* build/temp.*
CFLAGS="-fno-asynchronous-unwind-tables -fno-unwind-tables -falign-functions=1 -falign-jumps=1 -falign-loops=1 ${CFLAGS:-}" LDFLAGS="-Wl,-z,noseparate-code -Wl,-z,pack-relative-relocs ${LDFLAGS:-}" \
    FIREARROW_COMMANDS_ONLY=1 $python -m pip wheel --quiet --no-deps --disable-pip-version-check --wheel-dir "$work" .
rm -rf build/lib.* build/temp.*  # other programs build with other flags

# its dependencies, which have none themselves
packages=$($python -c 'import tomllib; of = tomllib.load(open("pyproject.toml", "rb"))["project"]
print(*(each.partition(";")[0] for each in of["dependencies"] + of["optional-dependencies"]["acl"]), sep="\n")')
echo "$packages" >"$work/packages"
$python -m pip install --quiet --no-deps --no-compile --disable-pip-version-check --target "$library" \
    "$work"/firearrow-*.whl --requirement "$work/packages"
version=$(basename "$work"/firearrow-*.whl | cut -d- -f2)+deb$release

# what no broker and no command uses: the Spark tools, the modules of theirs, those for Python programs without asyncio,
# for frameworks and for pytest, uvloop's tests
rm -rf "${library:?}/bin" "$library/firearrow/spark_tools" "$library/pyspark_firearrow" "$library/firearrow/client/threads" \
    "$library/firearrow/client/integrations"
rm "$library/firearrow/client/pytest_plugin.py" "$library/firearrow/client/blocking.py" "$library/firearrow/client/store.py" \
    "$library/firearrow/_native/offline/index_reader.py" "$library/firearrow/client/public.py" \
    "$library/firearrow/client/local_broker.py"
# consumers of Python programs: commands pull
rm -rf "$library/firearrow/client/pop"
for each in pop_consumer push_consumer push_consumer_runtime push_settings retry_producer; do
    rm "$library/firearrow/client/consumers/$each.py"
done
find "$library/firearrow/_native/columnar" -name '*.so' ! -name 'counters.*' ! -name 'record_spans.*' \
    ! -name 'unwritten.*' -delete
find "$library/uvloop" \( -name _testbase.py -o -name '*.pxi' \) -delete
find "$library" -depth -type d \( -name tests -o -name test -o -name sboms -o -name __pycache__ \) -exec rm -rf {} +
find "$library" -type f \( -name '*.pyx' -o -name '*.pxd' -o -name '*.pyi' -o -name '*.c' -o -name '*.h' \
    -o -name direct_url.json -o -path '*.dist-info/RECORD' \) -delete
find "$library" -path '*.dist-info/METADATA' ! -path '*/firearrow-*' -delete
# the console is a package of its own, with links to Debian's libraries, some of which only one release has
mkdir -p "$console/$site/firearrow/client" "$console/DEBIAN"
mv "$library/firearrow/client/console" "$console/$site/firearrow/client/console"
for each in anyio asgiref click h11 idna jinja2 markupsafe sniffio starlette typing_extensions.py uvicorn; do
    ln -s "/usr/lib/python3/dist-packages/$each" "$console/$site/$each"
done
sed -i '/^$/q' "$library"/firearrow-*.dist-info/METADATA  # without README
find "$library" -name '*.so' -exec strip --strip-unneeded {} +
$python -I -S "$here/check_imports.py" "$library" || fail "what is left of the wheel cannot be imported"
# PyYAML and protobuf, which only plain_acl.yml and clients of gRPC need, are Debian's own, older ones
rm -rf "$library/yaml" "$library/_yaml" "$library"/pyyaml-*.dist-info "$library/google" "$library"/protobuf-*.dist-info
mkdir "$library/google"
ln -s /usr/lib/python3/dist-packages/google/protobuf "$library/google/protobuf"
ln -s /usr/lib/python3/dist-packages/yaml "$library/yaml"
find "$library" -path '*.dist-info/*' \( -name INSTALLER -o -name REQUESTED -o -name top_level.txt \) -delete
# without the columns of tracebacks, a fifth of the size
$python -X no_debug_ranges -m compileall -q --invalidation-mode unchecked-hash -s "$root" -p / "$library"
$python -m compileall -q --invalidation-mode unchecked-hash -s "$console" -p / "$console/$site/firearrow"

# the environment: its interpreter is Debian's
ln -s "/usr/bin/python$minor" "$root/usr/lib/firearrow/bin/python"
printf 'home = /usr/bin\ninclude-system-site-packages = false\nversion = %s\n' "$minor" >"$root/usr/lib/firearrow/pyvenv.cfg"
cat >"$root/usr/lib/firearrow/bin/firearrow" <<'END'
#!/usr/lib/firearrow/bin/python -I
import sys

from firearrow.client.cli.main import main

sys.exit(main())
END
chmod 755 "$root/usr/lib/firearrow/bin/firearrow"
ln -s ../lib/firearrow/bin/firearrow "$root/usr/bin/firearrow"

# configuration, units, documents
install -D -m 644 packaging/broker.conf "$root/etc/firearrow/broker.conf"
install -D -m 644 packaging/systemd/firearrow.default "$root/etc/default/firearrow"
install -D -m 644 -t "$root/lib/systemd/system" packaging/systemd/firearrow.service packaging/systemd/firearrow.socket
install -D -m 644 LICENSE "$root/usr/share/doc/firearrow/copyright"
install -D -m 644 -t "$root/usr/share/doc/firearrow" README.md SECURITY.md
install -D -m 644 -t "$root/usr/share/doc/firearrow/docs" docs/*.md
find "$root/usr/share/doc/firearrow/docs" \( -name 'ARCHITECTURE*' -o -name 'BENCHMARKS*' -o -name 'SPARK*' \) -delete
gzip -9n "$root"/usr/share/doc/firearrow/*.md "$root"/usr/share/doc/firearrow/docs/*.md
install -D -m 644 LICENSE "$console/usr/share/doc/firearrow-console/copyright"
mv "$root/usr/share/doc/firearrow/docs"/CONSOLE.* "$console/usr/share/doc/firearrow-console"
install -D -m 644 "$here/firearrow.1" "$root/usr/share/man/man1/firearrow.1"
gzip -9n "$root/usr/share/man/man1/firearrow.1"
gzip -9nc CHANGELOG.md >"$root/usr/share/doc/firearrow/changelog.gz"
install -d -m 750 "$root/var/lib/firearrow"

# completion
install -d "$root/usr/share/bash-completion/completions" "$root/usr/share/zsh/vendor-completions" \
    "$root/usr/share/fish/vendor_completions.d"
.venv/bin/firearrow completion bash >"$root/usr/share/bash-completion/completions/firearrow"
.venv/bin/firearrow completion zsh >"$root/usr/share/zsh/vendor-completions/_firearrow"
.venv/bin/firearrow completion fish >"$root/usr/share/fish/vendor_completions.d/firearrow.fish"

# control
printf '/etc/firearrow/broker.conf\n/etc/default/firearrow\n' >"$root/DEBIAN/conffiles"
install -m 755 "$here/postinst" "$here/prerm" "$here/postrm" "$root/DEBIAN"
# as dpkg-gencontrol counts; what a disk with blocks of 4 KiB takes is more
installed_of() {
    find "$1" -path "$1/DEBIAN" -prune -o -printf '%y %s\n' |
        awk '{ total += $1 == "f" ? int(($2 + 1023) / 1024) : 1 } END { print total }'
}
installed=$(installed_of "$root")
size=$(du -sk --exclude=DEBIAN "$root" | cut -f1)
[ "$size" -le $size_max ] || fail "$root has $size KiB, more than $size_max: see what came into it"
# 2.36 is the first that knows packed relocations
libc=$( (echo 2.36 && find "$library" -name '*.so' -exec grep -aoh 'GLIBC_2\.[0-9]*' {} + | sed 's/GLIBC_//') | sort -uV | tail -1)
cat >"$root/DEBIAN/control" <<END
Package: firearrow
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: $maintainer
Section: net
Priority: optional
Depends: python$minor, libc6 (>= $libc), libnghttp2-14, passwd
Recommends: openssl, python3-protobuf, python3-yaml
Suggests: firearrow-console
Installed-Size: $installed
Description: message broker for one machine that speaks Apache RocketMQ
 RocketMQ's clients and mqadmin work with it unchanged, and its store is
 Apache's format. Broker and name server are one process without a JVM.
END
cat >"$console/DEBIAN/control" <<END
Package: firearrow-console
Version: $version
Architecture: all
Maintainer: $maintainer
Section: net
Priority: optional
Depends: firearrow (= $version), python3-jinja2, python3-starlette, python3-uvicorn
Installed-Size: $(installed_of "$console")
Description: web console for FireArrow and Apache RocketMQ
 Pages for a browser that show topics, groups, messages and what is wrong with
 them, of a broker that runs with consoleListen, or of any cluster.
END
find "$root" "$console" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
package=dist/firearrow_${version}_$(dpkg --print-architecture).deb
dpkg-deb --root-owner-group -Zxz --build "$root" "$package" >/dev/null
dpkg-deb --root-owner-group -Zxz --build "$console" "dist/firearrow-console_${version}_all.deb" >/dev/null
echo "$package: for Debian $release ($suite), $(du -k "$package" | cut -f1) KiB, installed $size KiB"
