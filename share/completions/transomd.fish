complete -c transomd -l socket-path -d 'Create the socket at PATH and wait for the front end there' -r -F
complete -c transomd -l socket-group -d 'Let the members of GROUP connect too, given by name or number' -r
complete -c transomd -l fd -d 'Take descriptor N, inherited from the caller, as the listening socket' -r
complete -c transomd -l upgrade -d 'Replace the daemon that serves the socket PATH by the version that is installed now, print the outcome, and exit' -r -F
complete -c transomd -l socket -d 'The same as --socket-path [deprecated]' -r -F
complete -c transomd -l shared-dir -d 'Share this directory, or this one file' -r -F
complete -c transomd -l tag -d 'Offer TAG, the name by which guests mount the share, to front ends that ask the daemon for it' -r
complete -c transomd -l overlay -d 'Keep what the guest changes in DIR, and leave the shared directory as it is' -r -F
complete -c transomd -l quota -d 'Limit what the guest may add to the share: SIZE bytes, and N files' -r
complete -c transomd -l events -d 'Announce changes that others make on this host to transom-agent in the guest' -r -f -a "always\t'They are; the daemon does not start if they cannot be observed'
auto\t'They are if they can be observed'
never\t'They are not'"
complete -c transomd -l events-validity -d 'How long the guest may use names and attributes while an agent keeps up with the changes, in seconds' -r
complete -c transomd -l hide -d 'Hide PATH of the share, and everything below it, from the guest; may be repeated' -r -F
complete -c transomd -l hide-contents -d 'Show the directory PATH of the share as an empty one; may be repeated' -r -F
complete -c transomd -l hide-name -d 'Hide every file and directory of this name from the guest, wherever it is; may be repeated' -r
complete -c transomd -l show -d 'Show PATH, and everything below it, although a directory above it or its name is hidden; may be repeated' -r -F
complete -c transomd -l cache -d 'What the guest may cache' -r -f -a "never\t'Nothing is cached; each access asks the host'
metadata\t'Names and attributes are cached, data is not'
auto\t'Names and attributes are cached for a second; cached data is dropped if the file has changed when it is opened'
always\t'Everything is cached until the guest needs the memory; correct only if nobody else changes the share'"
complete -c transomd -l negative-timeout -d 'How long the guest may cache that a name does not exist, in seconds; 0 for not at all' -r
complete -c transomd -l coherence-group -d 'Join GROUP, whose daemons share the same directory, so that guests that can use its version table see changes made by guests of the others at their next access' -r
complete -c transomd -l xattrmap -d 'Translate names of extended attributes by RULES, such as \':map::user.virtiofs.:\'' -r
complete -c transomd -l posix-acl -d 'Serve POSIX access control lists; without a value, \'always\'' -r -f -a "never\t'Not offered'
auto\t'Used if the guest supports it'
always\t'Required; a guest that does not support it cannot mount the share'"
complete -c transomd -l security-label -d 'Store the label that the guest\'s security module sends with each new file; without a value, \'always\'' -r -f -a "never\t'Not offered'
auto\t'Used if the guest supports it'
always\t'Required; a guest that does not support it cannot mount the share'"
complete -c transomd -l squash-to -d 'Make everything the guest creates belong to UID:GID on the host, or, with \'self\', to the daemon\'s user' -r
complete -c transomd -l squash-as -d 'The owner that the guest sees with --squash-to' -r
complete -c transomd -l translate-uid -d 'Translate uids between guest and host: TYPE:FIRST:TARGET:COUNT; may be repeated' -r
complete -c transomd -l translate-gid -d 'As --translate-uid, for gids' -r
complete -c transomd -l uid-map -d 'Run in a user namespace that maps COUNT uids from INSIDE to those from OUTSIDE; may be repeated' -r
complete -c transomd -l gid-map -d 'As --uid-map, for gids' -r
complete -c transomd -l dax-window -d 'Offer the guest a window of SIZE in which it maps the host\'s page cache, as in 256M [default: none]' -r
complete -c transomd -l dax-policy -d 'Which files are mapped by a guest that leaves the choice to the daemon (mount option dax=inode, the default)' -r
complete -c transomd -l front-end -d 'The front end, which determines how the window is used' -r -f -a "auto\t'Any: only what all of them support is used'
qemu\t'QEMU\'s generic device, vhost-user-test-device-pci, 11.1 and later'
crosvm\t'crosvm'
alioth\t'Alioth'
generic\t'A front end that follows the vhost-user specification'
passthrough\t'transom mount --passthrough, which passes the files to the kernel'"
complete -c transomd -l num-request-queues -l queue-num -d 'Offer N request queues; a front end may use fewer [default: 8, and 1 with --dax-window]' -r
complete -c transomd -l thread-pool-size -d 'Use up to N threads for operations that wait for the disk; 0: they block their queue' -r
complete -c transomd -l poll-us -d 'Poll an idle queue for up to N microseconds before sleeping; 0: no polling' -r
complete -c transomd -l rate -d 'Limit what the guest may do in a second: SIZE bytes, N requests, or both' -r
complete -c transomd -l inode-file-handles -d 'Hold inodes by file handles rather than by open descriptors' -r -f -a "never\t'Always a descriptor'
prefer\t'A handle if the host\'s file system supports them and the daemon may open them, otherwise a descriptor'
mandatory\t'Always a handle; files without handles cannot be used'"
complete -c transomd -l max-fds -d 'Hold at most N descriptors on behalf of the guest [default: what --rlimit-nofile leaves]' -r
complete -c transomd -l inode-limit -d 'Keep at most N inodes for the guest' -r
complete -c transomd -l rlimit-nofile -d 'Set the limit on open descriptors to N; 0: leave it unchanged [default: 1000000, or /proc/sys/fs/nr_open if less]' -r
complete -c transomd -l host-changes -d 'Observe changes that other processes make in the shared directory' -r -f -a "auto\t'In a coherence group they are stamped, if that is possible; otherwise they are not observed'
never\t'They are not'
prefer\t'They are if the kernel, the file system and the daemon\'s privileges allow it; otherwise there is a warning'
mandatory\t'The daemon does not start if they cannot be'"
complete -c transomd -l sandbox -d 'What the daemon can see of the machine while it serves' -r -f -a "namespace\t'Namespaces of its own, with the share as the only files in them'
chroot\t'The share as root directory; needs root'
none\t'No isolation'"
complete -c transomd -l seccomp -d 'What happens if the daemon makes a system call that is not allowed' -r -f -a "none\t'No filter'
kill\t'The daemon is killed'
log\t'The kernel logs and allows it'
trap\t'The daemon gets SIGSYS'"
complete -c transomd -l modcaps -d 'Keep (+) or drop (-) capabilities relative to the default, as in \'+sys_admin:-mknod\'' -r
complete -c transomd -l migration-mode -d 'How the source describes inodes to the destination' -r -f -a "find-paths\t'By their paths within the share'
file-handles\t'By file handles; source and destination share the same file system'"
complete -c transomd -l migration-on-error -d 'What to do with an inode or an open file that cannot be carried over' -r -f -a "abort\t'The migration fails'
guest-error\t'The guest gets errors for that inode'"
complete -c transomd -l migration-locks -d 'What to do with POSIX locks of the host (--posix-lock)' -r -f -a "refuse\t'A guest that holds a lock or waits for one is not migrated'
carry\t'The destination takes the locks when the source has let go of them'"
complete -c transomd -l log-level -d 'Write messages of this level and above' -r -f -a "error\t'Failures'
warn\t'Conditions that may cause failures later'
info\t'Events of the share as a whole'
debug\t'Events of each connection and queue'
trace\t'Events of each request'
off\t'Nothing'"
complete -c transomd -l metrics-socket -d 'Serve counters and latencies as OpenMetrics text on a socket at PATH' -r -F
complete -c transomd -s o -d 'Options in a list, as in \'source=/srv,cache=always,xattr\' [deprecated]' -r
complete -c transomd -l keep-serving -d 'When a front end leaves, wait for the next one instead of exiting'
complete -c transomd -l upgradable -d 'Let the daemon be replaced by another version while the guest runs: on SIGHUP, or by --upgrade'
complete -c transomd -l resilient -d 'Let the guest go on if the daemon is killed or crashes'
complete -c transomd -l check -d 'Set everything up as for serving, without a socket, and exit'
complete -c transomd -l print-capabilities -d 'Print, as JSON, which optional features management software may rely on, and exit'
complete -c transomd -l readonly -d 'Refuse all changes to the share'
complete -c transomd -l upper-layer -d 'Serve the share as the upper layer of an overlayfs that the guest mounts'
complete -c transomd -l notification-queue -d 'Tell the guest of changes that others make on this host, over virtio\'s notification queue'
complete -c transomd -l announce-submounts -d 'Show each file system mounted below the shared directory with its own device number [default]'
complete -c transomd -l no-announce-submounts -d 'Show the whole share as one file system'
complete -c transomd -l writeback -d 'Let the guest cache writes and send them later'
complete -c transomd -l allow-mmap -d 'Allow shared mappings of files with --cache never and metadata'
complete -c transomd -l allow-direct-io -d 'Open a file on the host with O_DIRECT if a program in the guest does'
complete -c transomd -l no-readdirplus -d 'List directories without the attributes of their entries'
complete -c transomd -l xattr -d 'Serve extended attributes'
complete -c transomd -l killpriv-v2 -d 'Let the host clear set-user-id and set-group-id bits when a file changes'
complete -c transomd -l no-killpriv-v2 -d 'Let the guest clear set-id bits [default]'
complete -c transomd -l preserve-noatime -d 'Pass O_NOATIME to the host, although the host may refuse it for files of other users'
complete -c transomd -l birth-times -d 'Report file creation times, even if that costs a request for each file'
complete -c transomd -l no-dax-guard -d 'Let other processes truncate files that the guest has mapped'
complete -c transomd -l posix-lock -d 'Take fcntl locks on the host, so that they hold between guests and against the host\'s programs'
complete -c transomd -l no-posix-lock -d 'Keep fcntl locks within each guest [default]'
complete -c transomd -l flock -d 'Take flock locks on the host, so that they hold between guests and against the host\'s programs'
complete -c transomd -l no-flock -d 'Keep flock locks within each guest [default]'
complete -c transomd -l migration-verify-handles -d 'Send file handles along with paths, and have the destination compare'
complete -c transomd -l migration-confirm-paths -d 'Check every path once more at the switch-over, while the guest is stopped [always done]'
complete -c transomd -l syslog -d 'Write to the system log instead of standard error'
complete -c transomd -s d -d 'The same as --log-level debug [deprecated]'
complete -c transomd -s f -d 'No effect: the daemon always stays in the foreground [deprecated]'
complete -c transomd -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transomd -s V -l version -d 'Print version'
