#!/bin/sh
# Runs xfstests over mounts of `transom mount`: xfstests.sh DIR TREE TRANSOM OPTIONS ARGUMENTS...
#
# DIR gets everything that is written: the shared directories, the configuration, the results. OPTIONS are those of
# `mount -o`. The caller gives this process a mount namespace of its own, in which /sbin gets the helper of mount(8).
set -e
dir=$1 tree=$2 transom=$3 options=$4
shift 4
for name in bin sbin transom-test transom-scratch mnt-test mnt-scratch results; do
  mkdir "$dir/$name"
done
ln -s "$transom" "$dir/bin/mount.transom"

# mount(8) runs it for the type fuse.transom: SOURCE MOUNTPOINT -o OPTIONS. A source is the name of a directory of
# $dir, not its path, because umount(8) takes a path for a mount point. The kernel remounts without a helper.
# Warnings stay in a file, since tests compare what they print.
cat >"$dir/sbin/mount.fuse.transom" <<END
#!/bin/sh
source=\$1
case " \$* " in
*remount*) exec mount -i -o "\$4" "\$2" ;;
esac
shift
"$dir/bin/mount.transom" "$dir/\$source" "\$@" -o "fsname=\$source" 2>"$dir/mount.log" && exit
cat "$dir/mount.log" >&2
exit 1
END

# xfstests knows types without subtypes.
cat >"$dir/bin/df" <<END
#!/bin/sh
$(command -v df) "\$@" | sed 's/fuse\\.transom/fuse        /'
END
chmod +x "$dir/sbin/mount.fuse.transom" "$dir/bin/df"

cat >"$dir/local.config" <<END
export FSTYP=fuse
export FUSE_SUBTYP=.transom
export TEST_DEV=transom-test
export TEST_DIR=$dir/mnt-test
export SCRATCH_DEV=transom-scratch
export SCRATCH_MNT=$dir/mnt-scratch
export MOUNT_OPTIONS="-o $options"
export TEST_FS_MOUNT_OPTS="-o $options"
export RESULT_BASE=$dir/results
END

mount --make-rprivate /
sbin=$(realpath /sbin)
mount -t overlay -o "lowerdir=$dir/sbin:$sbin" overlay "$sbin"
cd "$tree"
export HOST_OPTIONS="$dir/local.config" PATH="$dir/bin:$sbin:$PATH"
# The caller reads standard output when all is over; who waits for it reads the other.
bash ./check "$@" 2>&1 | awk '{ print; print >"/dev/stderr"; fflush() }'
