#!/bin/sh
# make deb: a Debian package from a wheel of this clone and the wheels that it needs, in dist/.
#
# It is for the Debian release whose Python is that of .venv (make deb PYTHON=python3.11). All Python code is in a
# virtual environment, /usr/lib/firearrow, whose interpreter is Debian's: packages of pip and of Debian do not meet.
set -eu
cd "$(dirname "$0")/../.."
here=packaging/deb work=build/deb root=build/deb/root

fail() {
    echo "make deb: $1" >&2
    exit 1
}

for tool in dpkg-deb:dpkg strip:binutils gzip:gzip; do
    command -v "${tool%:*}" >/dev/null || fail "there is no ${tool%:*}: install the package ${tool#*:}"
done
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
library=$root/usr/lib/firearrow/lib/python$minor/site-packages
mkdir -p "$library" "$root/usr/lib/firearrow/bin" "$root/usr/bin" "$root/DEBIAN" dist

# the wheel and its dependencies
$python -m pip wheel --quiet --no-deps --disable-pip-version-check --wheel-dir "$work" .
$python -m pip install --quiet --no-compile --disable-pip-version-check --target "$library" "$(echo "$work"/firearrow-*.whl)[acl]"
version=$(basename "$work"/firearrow-*.whl | cut -d- -f2)+deb$release
rm -rf "${library:?}/bin"
find "$library" -depth -type d \( -name tests -o -name test -o -name __pycache__ \) -exec rm -rf {} +
find "$library" -type f \( -name '*.pyx' -o -name '*.pxd' -o -name '*.pyi' -o -name '*.c' -o -name '*.h' -o -name 'direct_url.json' \) -delete
find "$library" -name '*.so' -exec strip --strip-unneeded {} +
$python -m compileall -q --invalidation-mode unchecked-hash -s "$root" -p / "$library"

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
gzip -9nc CHANGELOG.md >"$root/usr/share/doc/firearrow/changelog.gz"
install -d -m 750 "$root/var/lib/firearrow"

# control
printf '/etc/firearrow/broker.conf\n/etc/default/firearrow\n' >"$root/DEBIAN/conffiles"
install -m 755 "$here/postinst" "$here/prerm" "$here/postrm" "$root/DEBIAN"
libc=$(find "$library" -name '*.so' -exec grep -aoh 'GLIBC_2\.[0-9]*' {} + | sed 's/GLIBC_//' | sort -uV | tail -1)
cat >"$root/DEBIAN/control" <<END
Package: firearrow
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: $maintainer
Section: net
Priority: optional
Depends: python$minor, libc6 (>= $libc), passwd
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)
Description: message broker for one machine that speaks Apache RocketMQ
 RocketMQ's clients and mqadmin work with it unchanged, and its store is
 Apache's format. Broker and name server are one process without a JVM.
END
find "$root" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
package=dist/firearrow_${version}_$(dpkg --print-architecture).deb
dpkg-deb --root-owner-group -Zxz --build "$root" "$package" >/dev/null
echo "$package: for Debian $release ($suite), $(du -k "$package" | cut -f1) KiB"
