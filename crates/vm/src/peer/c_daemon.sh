#!/bin/sh
# Starts the C daemon of QEMU up to 7.2 by the options of virtiofsd 1.x, of which it has others for the same.
count=$#
while [ "$count" -gt 0 ]; do
  word=$1
  shift
  count=$((count - 1))
  case $word in
    --shared-dir | --cache | --sandbox)
      value=$1
      shift
      count=$((count - 1))
      ;;
    --shared-dir=* | --cache=* | --sandbox=*)
      value=${word#*=}
      word=${word%%=*}
      ;;
  esac
  case $word in
    --shared-dir) set -- "$@" -o "source=$value" ;;
    --cache)
      case $value in
        never) value=none ;;
        metadata)
          echo "the C daemon has no cache mode 'metadata'" >&2
          exit 64
          ;;
      esac
      set -- "$@" -o "cache=$value"
      ;;
    --sandbox)
      case $value in
        none)
          echo "the C daemon does not run without a sandbox" >&2
          exit 64
          ;;
      esac
      set -- "$@" -o "sandbox=$value"
      ;;
    *) set -- "$@" "$word" ;;
  esac
done
exec "$VIRTIOFSD_C" "$@"
