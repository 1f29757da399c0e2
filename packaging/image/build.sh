#!/bin/sh
# make image: an OCI image from the Debian package in dist/, without a container engine: dist/firearrow-VERSION-oci.tar.
#
# The first layer is Debian's essential packages and Python, the second is FireArrow. With --check it only looks whether
# this machine can do it: make image asks that first, because the package takes minutes.
set -eu
cd "$(dirname "$0")/../.."
work=build/image layout=build/image/oci uid=10001

fail() {
    echo "make image: $1" >&2
    exit 1
}

missing=
for tool in mmdebstrap:mmdebstrap umoci:umoci dpkg-deb:dpkg; do
    command -v ${tool%:*} >/dev/null || missing="$missing ${tool#*:}"
done
[ -e "${KEYRINGS:-/usr/share/keyrings}/debian-archive-keyring.gpg" ] || missing="$missing debian-archive-keyring"
[ -z "$missing" ] || fail "this machine lacks$missing: apt install$missing (Debian, Ubuntu); without them, Docker makes \
the same image: docker build -f packaging/Dockerfile -t firearrow ."
[ "$(id -u)" = 0 ] || fail "this needs root, which owns the image's files: make deb, then sudo packaging/image/build.sh"
[ "${1:-}" != --check ] || exit 0
machine=$(dpkg --print-architecture)
package=$(find dist -name "firearrow_*_$machine.deb" -printf '%T@ %p\n' | sort -n | tail -1 | cut -d' ' -f2)
[ -n "$package" ] || fail "there is no package in dist/: run make deb"
debian=$(dpkg-deb --field "$package" Version)
version=${debian%+deb*}
python=$(dpkg-deb --field "$package" Depends | grep -o 'python3\.[0-9]*')
case ${debian##*+deb} in
    12) suite=bookworm ;;
    13) suite=trixie ;;
    *) fail "$package is for no Debian release that is known here" ;;
esac
image=$layout:$version

rm -rf "$work"
mkdir -p "$work"

# Debian: without documentation, except licences, and without translations
# (usr-is-merged instead of usrmerge, which would bring all of Perl)
mmdebstrap --quiet --variant=essential --include="$python,passwd,libnghttp2-14,python3-protobuf,python3-yaml,usr-is-merged" \
    --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/info/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/lintian/*' \
    --customize-hook="chroot \"\$1\" useradd --uid $uid --gid 0 --home-dir /var/lib/firearrow --no-create-home --shell /usr/sbin/nologin firearrow" \
    --customize-hook='cd "$1" && rm -rf var/cache/ldconfig var/cache/debconf/* var/log/*' \
    "$suite" "$work/debian.tar" >/dev/null
umoci init --layout "$layout"
umoci new --image "$image"
umoci unpack --image "$image" "$work/bundle"
tar -C "$work/bundle/rootfs" -xf "$work/debian.tar"
umoci repack --refresh-bundle --image "$image" "$work/bundle"

# FireArrow; group 0 may write to the store's folder, for platforms that choose the user's id
cp "$package" "$work/bundle/rootfs/firearrow.deb"
chroot "$work/bundle/rootfs" dpkg --install /firearrow.deb >/dev/null
rm -rf "$work/bundle/rootfs/firearrow.deb" "$work"/bundle/rootfs/var/log/* "$work"/bundle/rootfs/var/cache/debconf/* \
    "$work"/bundle/rootfs/var/lib/dpkg/*-old
chown "$uid:0" "$work/bundle/rootfs/var/lib/firearrow"
chmod 770 "$work/bundle/rootfs/var/lib/firearrow"
# a container's host name is another one each time
sed -i 's/^#brokerName=.*/brokerName=firearrow/' "$work/bundle/rootfs/etc/firearrow/broker.conf"
umoci repack --image "$image" "$work/bundle"

umoci config --image "$image" --os linux --architecture "$machine" --author "The FireArrow project" \
    --config.user "$uid:0" --config.workingdir /var/lib/firearrow --config.volume /var/lib/firearrow \
    --config.exposedports 10911/tcp --config.exposedports 10909/tcp --config.exposedports 9876/tcp --config.exposedports 8081/tcp \
    --config.env LANG=C.UTF-8 --config.env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    --config.stopsignal SIGTERM \
    --config.entrypoint /usr/bin/firearrow --config.entrypoint broker \
    --config.entrypoint --config --config.entrypoint /etc/firearrow/broker.conf \
    --config.entrypoint --store --config.entrypoint /var/lib/firearrow/store \
    --config.entrypoint --listen --config.entrypoint 0.0.0.0:10911 \
    --config.entrypoint --namesrv-listen --config.entrypoint 0.0.0.0:9876 \
    --config.label org.opencontainers.image.title=firearrow \
    --config.label "org.opencontainers.image.version=$version" \
    --config.label org.opencontainers.image.licenses=Apache-2.0
umoci gc --layout "$layout"
archive=dist/firearrow-$version-oci.tar
tar -C "$layout" --sort=name --owner=0 --group=0 --numeric-owner -cf "$archive" .
echo "$archive: $(du -k "$archive" | cut -f1) KiB compressed, $(du -sk "$work/bundle/rootfs" | cut -f1) KiB unpacked"
