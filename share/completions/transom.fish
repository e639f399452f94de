# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_transom_global_optspecs
    string join \n h/help V/version
end

function __fish_transom_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_transom_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_transom_using_subcommand
    set -l cmd (__fish_transom_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c transom -n "__fish_transom_needs_command" -s h -l help -d 'Print help'
complete -c transom -n "__fish_transom_needs_command" -s V -l version -d 'Print version'
complete -c transom -n "__fish_transom_needs_command" -f -a "run" -d 'Run a command in a Linux virtual machine with directories of the host'
complete -c transom -n "__fish_transom_needs_command" -f -a "exec" -d 'Run a command in a machine that `transom run --keep` has started'
complete -c transom -n "__fish_transom_needs_command" -f -a "ps" -d 'List the machines that `transom run --keep` has started'
complete -c transom -n "__fish_transom_needs_command" -f -a "share" -d 'Add directories to a machine that `transom run --keep` has started, and remove them'
complete -c transom -n "__fish_transom_needs_command" -f -a "stop" -d 'End machines that `transom run --keep` has started'
complete -c transom -n "__fish_transom_needs_command" -f -a "cp" -d 'Copy files and trees between this machine and one that `transom run --keep` has started'
complete -c transom -n "__fish_transom_needs_command" -f -a "fs" -d 'Read and change the files of a share without mounting it'
complete -c transom -n "__fish_transom_needs_command" -f -a "overlays" -d 'List the directories that have an overlay, with what guests have changed'
complete -c transom -n "__fish_transom_needs_command" -f -a "diff" -d 'Show what guests have changed in an overlay of a directory'
complete -c transom -n "__fish_transom_needs_command" -f -a "commit" -d 'Write what guests have changed in an overlay into the directory'
complete -c transom -n "__fish_transom_needs_command" -f -a "discard" -d 'Throw away what guests have changed in an overlay'
complete -c transom -n "__fish_transom_needs_command" -f -a "mount" -d 'Mount the share of a virtio-fs daemon on this machine, without a virtual machine'
complete -c transom -n "__fish_transom_needs_command" -f -a "demo" -d 'Share a source tree with a stock Linux guest, work on it there, and compare every byte with the host; then repeat with DAX'
complete -c transom -n "__fish_transom_needs_command" -f -a "top" -d 'Watch what daemons do: requests, throughput and latencies by operation'
complete -c transom -n "__fish_transom_needs_command" -f -a "agent" -d 'Replay changes of the host in the shares of this machine, a guest'
complete -c transom -n "__fish_transom_needs_command" -f -a "bench" -d 'Compare virtio-fs daemons with each other and with the host\'s own file system'
complete -c transom -n "__fish_transom_using_subcommand run" -s s -l share -d 'A directory of the host to share; may be repeated' -r
complete -c transom -n "__fish_transom_using_subcommand run" -l root -d 'The guest\'s root: a directory of the host, `/` for the host\'s own root, or an image of a container' -r
complete -c transom -n "__fish_transom_using_subcommand run" -l hide -d 'Hide a path of the host from the guest, in every share that contains it; may be repeated' -r -F
complete -c transom -n "__fish_transom_using_subcommand run" -l show -d 'Show a path that --root / hides, and everything below it; may be repeated' -r -F
complete -c transom -n "__fish_transom_using_subcommand run" -l kernel -d 'The kernel: an image such as /boot/vmlinuz-…, or a series of Debian kernels such as 6.12' -r -F
complete -c transom -n "__fish_transom_using_subcommand run" -l cpus -d 'Number of virtual CPUs [default: those of this machine, at most 4]' -r
complete -c transom -n "__fish_transom_using_subcommand run" -s m -l memory -d 'Memory of the guest in MiB, or with a suffix K, M, G or T; at least 128M' -r
complete -c transom -n "__fish_transom_using_subcommand run" -l scratch -d 'Keep what the guest writes outside of its shares on a disk of this size, and not in its memory' -r
complete -c transom -n "__fish_transom_using_subcommand run" -l accel -d 'How the guest\'s instructions are run; `auto` uses KVM if it works' -r -f -a "auto\t''
kvm\t''
tcg\t''"
complete -c transom -n "__fish_transom_using_subcommand run" -l vmm -d 'The virtual machine monitor' -r -f -a "qemu\t'A PC emulator; runs any kernel'
uml\t'User Mode Linux: a kernel that runs as a process and boots in a tenth of a second, without DAX'"
complete -c transom -n "__fish_transom_using_subcommand run" -s e -l env -d 'Set an environment variable for the command; may be repeated' -r
complete -c transom -n "__fish_transom_using_subcommand run" -l user -d 'Run the command as this user of the guest instead of root' -r
complete -c transom -n "__fish_transom_using_subcommand run" -l workdir -d 'The command\'s working directory in the guest, which is made if it is missing [default: the first share]' -r -F
complete -c transom -n "__fish_transom_using_subcommand run" -l json -d 'At the end, write a JSON object with status, times, resources and changed files to FILE, or to standard output' -r -F
complete -c transom -n "__fish_transom_using_subcommand run" -l timeout -d 'Stop the guest after this many seconds, with exit status 124' -r
complete -c transom -n "__fish_transom_using_subcommand run" -l keep -d 'Keep the machine after COMMAND has ended, under this name, until `transom stop NAME`' -r
complete -c transom -n "__fish_transom_using_subcommand run" -l tty -d 'Give the command a terminal; `auto` does if standard input and output are terminals' -r -f -a "auto\t''
always\t''
never\t''"
complete -c transom -n "__fish_transom_using_subcommand run" -l events -d 'Replay changes that are made on the host in the guest\'s writable shares, at once and with inotify events' -r -f -a "auto\t''
always\t''
never\t''"
complete -c transom -n "__fish_transom_using_subcommand run" -l allow-host -d 'Let the guest connect to a host, by TCP; may be repeated [default: the guest has no network]' -r
complete -c transom -n "__fish_transom_using_subcommand run" -l resolve -d 'The address of an allowed host, instead of what the host\'s resolver says; may be repeated' -r
complete -c transom -n "__fish_transom_using_subcommand run" -l disk -d 'Limit what the guest may add to each writable share: SIZE bytes, and N files' -r
complete -c transom -n "__fish_transom_using_subcommand run" -l rate -d 'Limit what the guest may do with each share in a second: SIZE bytes, N requests, or both' -r
complete -c transom -n "__fish_transom_using_subcommand run" -l console -d 'Write the output of the guest\'s console to a file' -r -F
complete -c transom -n "__fish_transom_using_subcommand run" -l daemon -d 'The daemon that serves the shares, which must accept virtiofsd\'s options [default: transomd in this program\'s directory]' -r -F
complete -c transom -n "__fish_transom_using_subcommand run" -l coherence-group -d 'Have the share\'s daemon join GROUP, whose daemons tell each other\'s guests what has changed' -r
complete -c transom -n "__fish_transom_using_subcommand run" -l daemon-arg -d 'An argument to pass on to every share\'s daemon; may be repeated' -r
complete -c transom -n "__fish_transom_using_subcommand run" -l qemu -d 'The QEMU executable [default: qemu-system-x86_64 in PATH, or the one in the cache]' -r -F
complete -c transom -n "__fish_transom_using_subcommand run" -l busybox -d 'A static busybox for the minimal root [default: the installed one, or Debian\'s from the cache]' -r -F
complete -c transom -n "__fish_transom_using_subcommand run" -l commit-on-success -d 'Write what guests have changed in overlays into the directories if the command ends with status 0'
complete -c transom -n "__fish_transom_using_subcommand run" -l no-events -d 'The same as --events=never: the guest sees changes that are made on the host when its caches expire'
complete -c transom -n "__fish_transom_using_subcommand run" -l network -d 'Give the guest the whole network, by QEMU\'s user-mode network [default: the guest has no network]'
complete -c transom -n "__fish_transom_using_subcommand run" -s v -l timing -l verbose -d 'Print where each share is mounted, and the duration of each phase, to standard error'
complete -c transom -n "__fish_transom_using_subcommand run" -l cold -d 'Boot the machine, instead of resuming a snapshot of one that has booted'
complete -c transom -n "__fish_transom_using_subcommand run" -l kernel-with-versions -d 'Boot a kernel that reads the version table of the daemon\'s coherence group, so that nothing it caches is stale'
complete -c transom -n "__fish_transom_using_subcommand run" -l fetch -d 'Fetch QEMU as a package into the cache if it is not installed'
complete -c transom -n "__fish_transom_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transom -n "__fish_transom_using_subcommand exec" -s w -l workdir -d 'The working directory, which is made if it is missing [default: that of the machine]' -r -F
complete -c transom -n "__fish_transom_using_subcommand exec" -l user -d 'Run the command as this user of the guest [default: the user of the machine]' -r
complete -c transom -n "__fish_transom_using_subcommand exec" -s e -l env -d 'Set an environment variable, beside those of the machine; may be repeated' -r
complete -c transom -n "__fish_transom_using_subcommand exec" -s t -l tty -d 'Give the command a terminal; -t alone means always, `auto` does if standard input and output are terminals' -r -f -a "auto\t''
always\t''
never\t''"
complete -c transom -n "__fish_transom_using_subcommand exec" -l timeout -d 'Kill the command after this many seconds, with exit status 124' -r
complete -c transom -n "__fish_transom_using_subcommand exec" -l json -d 'At the end, write a JSON object with status, errors and time to FILE, or to standard output' -r -F
complete -c transom -n "__fish_transom_using_subcommand exec" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transom -n "__fish_transom_using_subcommand ps" -l json -d 'Print a JSON array, with an object for each machine'
complete -c transom -n "__fish_transom_using_subcommand ps" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transom -n "__fish_transom_using_subcommand share; and not __fish_seen_subcommand_from add remove" -s h -l help -d 'Print help'
complete -c transom -n "__fish_transom_using_subcommand share; and not __fish_seen_subcommand_from add remove" -f -a "add" -d 'Mount a directory of this machine in the machine NAME'
complete -c transom -n "__fish_transom_using_subcommand share; and not __fish_seen_subcommand_from add remove" -f -a "remove" -d 'Unmount a directory that `transom share add` has added'
complete -c transom -n "__fish_transom_using_subcommand share; and __fish_seen_subcommand_from add" -l timeout -d 'How long the guest may take; after that, the directory is not shared' -r
complete -c transom -n "__fish_transom_using_subcommand share; and __fish_seen_subcommand_from add" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transom -n "__fish_transom_using_subcommand share; and __fish_seen_subcommand_from remove" -l timeout -d 'How long the guest may take to write back; without --force, it goes on after that' -r
complete -c transom -n "__fish_transom_using_subcommand share; and __fish_seen_subcommand_from remove" -l force -d 'Remove it even if it is in use: what is not written yet is lost'
complete -c transom -n "__fish_transom_using_subcommand share; and __fish_seen_subcommand_from remove" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transom -n "__fish_transom_using_subcommand stop" -l timeout -d 'How long to wait for the end of each machine; it goes on after that' -r
complete -c transom -n "__fish_transom_using_subcommand stop" -l all -d 'End all machines of this user'
complete -c transom -n "__fish_transom_using_subcommand stop" -l force -d 'Do not wait for the guest: what its programs have not written yet is lost'
complete -c transom -n "__fish_transom_using_subcommand stop" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transom -n "__fish_transom_using_subcommand cp" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transom -n "__fish_transom_using_subcommand fs; and not __fish_seen_subcommand_from ls tree cat stat find du df cp mkdir rm mv ln touch write" -s s -l socket -d 'The socket of a running daemon (transomd, virtiofsd or another vhost-user-fs daemon) that has no front end yet' -r -F
complete -c transom -n "__fish_transom_using_subcommand fs; and not __fish_seen_subcommand_from ls tree cat stat find du df cp mkdir rm mv ln touch write" -s d -l shared-dir -d 'Start a daemon that shares this directory' -r -F
complete -c transom -n "__fish_transom_using_subcommand fs; and not __fish_seen_subcommand_from ls tree cat stat find du df cp mkdir rm mv ln touch write" -l daemon -d 'The daemon to start, which must accept virtiofsd\'s options [default: transomd in this program\'s directory]' -r -F
complete -c transom -n "__fish_transom_using_subcommand fs; and not __fish_seen_subcommand_from ls tree cat stat find du df cp mkdir rm mv ln touch write" -l coherence-group -d 'Have the daemon join GROUP, whose daemons tell each other\'s guests what has changed' -r
complete -c transom -n "__fish_transom_using_subcommand fs; and not __fish_seen_subcommand_from ls tree cat stat find du df cp mkdir rm mv ln touch write" -l daemon-arg -d 'An argument to pass on to the daemon; may be repeated' -r
complete -c transom -n "__fish_transom_using_subcommand fs; and not __fish_seen_subcommand_from ls tree cat stat find du df cp mkdir rm mv ln touch write" -l cache -d 'How long this process uses what it has read of names, attributes and data' -r -f -a "never\t'Not at all: every access asks the daemon'
auto\t'As long as the daemon says'
always\t'Until this process changes it: for a directory that nobody else changes'
shared\t'Until a guest of the daemon\'s coherence group changes it'"
complete -c transom -n "__fish_transom_using_subcommand fs; and not __fish_seen_subcommand_from ls tree cat stat find du df cp mkdir rm mv ln touch write" -l dax -d 'Copy file data through the daemon\'s DAX window, directly from and to the host\'s page cache'
complete -c transom -n "__fish_transom_using_subcommand fs; and not __fish_seen_subcommand_from ls tree cat stat find du df cp mkdir rm mv ln touch write" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transom -n "__fish_transom_using_subcommand fs; and not __fish_seen_subcommand_from ls tree cat stat find du df cp mkdir rm mv ln touch write" -f -a "ls" -d 'List directories and files'
complete -c transom -n "__fish_transom_using_subcommand fs; and not __fish_seen_subcommand_from ls tree cat stat find du df cp mkdir rm mv ln touch write" -f -a "tree" -d 'Show a directory and its contents as a tree'
complete -c transom -n "__fish_transom_using_subcommand fs; and not __fish_seen_subcommand_from ls tree cat stat find du df cp mkdir rm mv ln touch write" -f -a "cat" -d 'Write files to standard output'
complete -c transom -n "__fish_transom_using_subcommand fs; and not __fish_seen_subcommand_from ls tree cat stat find du df cp mkdir rm mv ln touch write" -f -a "stat" -d 'Show the attributes of files'
complete -c transom -n "__fish_transom_using_subcommand fs; and not __fish_seen_subcommand_from ls tree cat stat find du df cp mkdir rm mv ln touch write" -f -a "find" -d 'Print the paths below directories, optionally only those that match'
complete -c transom -n "__fish_transom_using_subcommand fs; and not __fish_seen_subcommand_from ls tree cat stat find du df cp mkdir rm mv ln touch write" -f -a "du" -d 'Add up the disk space that files use'
complete -c transom -n "__fish_transom_using_subcommand fs; and not __fish_seen_subcommand_from ls tree cat stat find du df cp mkdir rm mv ln touch write" -f -a "df" -d 'Show the size and free space of the share\'s file system'
complete -c transom -n "__fish_transom_using_subcommand fs; and not __fish_seen_subcommand_from ls tree cat stat find du df cp mkdir rm mv ln touch write" -f -a "cp" -d 'Copy files into the share, out of it, or within it'
complete -c transom -n "__fish_transom_using_subcommand fs; and not __fish_seen_subcommand_from ls tree cat stat find du df cp mkdir rm mv ln touch write" -f -a "mkdir" -d 'Make directories'
complete -c transom -n "__fish_transom_using_subcommand fs; and not __fish_seen_subcommand_from ls tree cat stat find du df cp mkdir rm mv ln touch write" -f -a "rm" -d 'Remove files, and with --recursive directories'
complete -c transom -n "__fish_transom_using_subcommand fs; and not __fish_seen_subcommand_from ls tree cat stat find du df cp mkdir rm mv ln touch write" -f -a "mv" -d 'Rename files, or move them to another directory of the share'
complete -c transom -n "__fish_transom_using_subcommand fs; and not __fish_seen_subcommand_from ls tree cat stat find du df cp mkdir rm mv ln touch write" -f -a "ln" -d 'Create a hard link or a symbolic link'
complete -c transom -n "__fish_transom_using_subcommand fs; and not __fish_seen_subcommand_from ls tree cat stat find du df cp mkdir rm mv ln touch write" -f -a "touch" -d 'Set the times of files to now, and create files that do not exist'
complete -c transom -n "__fish_transom_using_subcommand fs; and not __fish_seen_subcommand_from ls tree cat stat find du df cp mkdir rm mv ln touch write" -f -a "write" -d 'Write standard input to a file'
complete -c transom -n "__fish_transom_using_subcommand fs; and __fish_seen_subcommand_from ls" -s l -l long -d 'Also show mode, link count, owner, group, size and time; owners are numeric, since only a guest knows their names'
complete -c transom -n "__fish_transom_using_subcommand fs; and __fish_seen_subcommand_from ls" -s a -l all -d 'Include names that begin with a dot'
complete -c transom -n "__fish_transom_using_subcommand fs; and __fish_seen_subcommand_from ls" -s i -l inode -d 'Show inode numbers'
complete -c transom -n "__fish_transom_using_subcommand fs; and __fish_seen_subcommand_from ls" -s H -l human -d 'With --long, show sizes with a unit'
complete -c transom -n "__fish_transom_using_subcommand fs; and __fish_seen_subcommand_from ls" -s D -l directory -d 'List directories themselves, not their contents'
complete -c transom -n "__fish_transom_using_subcommand fs; and __fish_seen_subcommand_from ls" -s h -l help -d 'Print help'
complete -c transom -n "__fish_transom_using_subcommand fs; and __fish_seen_subcommand_from tree" -s L -l level -d 'Descend at most N levels of directories' -r
complete -c transom -n "__fish_transom_using_subcommand fs; and __fish_seen_subcommand_from tree" -s a -l all -d 'Include names that begin with a dot'
complete -c transom -n "__fish_transom_using_subcommand fs; and __fish_seen_subcommand_from tree" -s h -l help -d 'Print help'
complete -c transom -n "__fish_transom_using_subcommand fs; and __fish_seen_subcommand_from cat" -s h -l help -d 'Print help'
complete -c transom -n "__fish_transom_using_subcommand fs; and __fish_seen_subcommand_from stat" -s L -l dereference -d 'Follow symbolic links'
complete -c transom -n "__fish_transom_using_subcommand fs; and __fish_seen_subcommand_from stat" -l json -d 'Print one line of JSON for each path; bytes of names that are not UTF-8 appear as �'
complete -c transom -n "__fish_transom_using_subcommand fs; and __fish_seen_subcommand_from stat" -s h -l help -d 'Print help'
complete -c transom -n "__fish_transom_using_subcommand fs; and __fish_seen_subcommand_from find" -s n -l name -d 'Print only names that match a pattern with *, ? and […]' -r
complete -c transom -n "__fish_transom_using_subcommand fs; and __fish_seen_subcommand_from find" -s t -l type -d 'Print only entries of this type' -r -f -a "file\t''
directory\t''
symlink\t''
other\t'Any other type'"
complete -c transom -n "__fish_transom_using_subcommand fs; and __fish_seen_subcommand_from find" -l max-depth -d 'Descend at most N levels of directories' -r
complete -c transom -n "__fish_transom_using_subcommand fs; and __fish_seen_subcommand_from find" -s 0 -l print0 -d 'End each path with a NUL byte instead of a newline, for `xargs -0`'
complete -c transom -n "__fish_transom_using_subcommand fs; and __fish_seen_subcommand_from find" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transom -n "__fish_transom_using_subcommand fs; and __fish_seen_subcommand_from du" -s s -l summarize -d 'Print only the sum of each PATH, not of the directories below it'
complete -c transom -n "__fish_transom_using_subcommand fs; and __fish_seen_subcommand_from du" -l apparent -d 'Add up lengths instead of allocated space'
complete -c transom -n "__fish_transom_using_subcommand fs; and __fish_seen_subcommand_from du" -s H -l human -d 'Print sizes with a unit instead of in bytes'
complete -c transom -n "__fish_transom_using_subcommand fs; and __fish_seen_subcommand_from du" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transom -n "__fish_transom_using_subcommand fs; and __fish_seen_subcommand_from df" -s h -l help -d 'Print help'
complete -c transom -n "__fish_transom_using_subcommand fs; and __fish_seen_subcommand_from cp" -s r -l recursive -d 'Copy directories and their contents'
complete -c transom -n "__fish_transom_using_subcommand fs; and __fish_seen_subcommand_from cp" -s p -l preserve -d 'Preserve times, modes and, if permitted, owners'
complete -c transom -n "__fish_transom_using_subcommand fs; and __fish_seen_subcommand_from cp" -s q -l quiet -d 'Show no progress; the default if standard error is not a terminal'
complete -c transom -n "__fish_transom_using_subcommand fs; and __fish_seen_subcommand_from cp" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transom -n "__fish_transom_using_subcommand fs; and __fish_seen_subcommand_from mkdir" -s p -l parents -d 'Create parent directories as needed; no error if a directory exists'
complete -c transom -n "__fish_transom_using_subcommand fs; and __fish_seen_subcommand_from mkdir" -s h -l help -d 'Print help'
complete -c transom -n "__fish_transom_using_subcommand fs; and __fish_seen_subcommand_from rm" -s r -l recursive -d 'Remove directories and their contents'
complete -c transom -n "__fish_transom_using_subcommand fs; and __fish_seen_subcommand_from rm" -s f -l force -d 'Ignore files that do not exist'
complete -c transom -n "__fish_transom_using_subcommand fs; and __fish_seen_subcommand_from rm" -s h -l help -d 'Print help'
complete -c transom -n "__fish_transom_using_subcommand fs; and __fish_seen_subcommand_from mv" -s n -l no-clobber -d 'Fail instead of replacing an existing file'
complete -c transom -n "__fish_transom_using_subcommand fs; and __fish_seen_subcommand_from mv" -s h -l help -d 'Print help'
complete -c transom -n "__fish_transom_using_subcommand fs; and __fish_seen_subcommand_from ln" -s s -l symbolic -d 'Create a symbolic link instead of a hard link'
complete -c transom -n "__fish_transom_using_subcommand fs; and __fish_seen_subcommand_from ln" -s h -l help -d 'Print help'
complete -c transom -n "__fish_transom_using_subcommand fs; and __fish_seen_subcommand_from touch" -s h -l help -d 'Print help'
complete -c transom -n "__fish_transom_using_subcommand fs; and __fish_seen_subcommand_from write" -s a -l append -d 'Append to the file instead of replacing its contents'
complete -c transom -n "__fish_transom_using_subcommand fs; and __fish_seen_subcommand_from write" -s h -l help -d 'Print help'
complete -c transom -n "__fish_transom_using_subcommand overlays" -l json -d 'Print a JSON array instead of lines'
complete -c transom -n "__fish_transom_using_subcommand overlays" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transom -n "__fish_transom_using_subcommand diff" -s p -l patch -d 'Show the changes of text as a unified diff, for patch -p1 or git apply'
complete -c transom -n "__fish_transom_using_subcommand diff" -l json -d 'Print a JSON object instead of a table'
complete -c transom -n "__fish_transom_using_subcommand diff" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transom -n "__fish_transom_using_subcommand commit" -s f -l force -d 'Overwrite what has been changed on the host too'
complete -c transom -n "__fish_transom_using_subcommand commit" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transom -n "__fish_transom_using_subcommand discard" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transom -n "__fish_transom_using_subcommand mount" -s s -l socket -d 'The socket of a running daemon (transomd, virtiofsd or another vhost-user-fs daemon) that has no front end yet' -r -F
complete -c transom -n "__fish_transom_using_subcommand mount" -s d -l shared-dir -d 'Start a daemon that shares this directory' -r -F
complete -c transom -n "__fish_transom_using_subcommand mount" -l daemon -d 'The daemon to start, which must accept virtiofsd\'s options [default: transomd in this program\'s directory]' -r -F
complete -c transom -n "__fish_transom_using_subcommand mount" -l coherence-group -d 'Have the daemon join GROUP, whose daemons tell each other\'s guests what has changed' -r
complete -c transom -n "__fish_transom_using_subcommand mount" -s o -d 'Mount options as in fstab: ro, nosuid, passthrough, reconnect[=SECONDS], threads=N and others; may be repeated' -r
complete -c transom -n "__fish_transom_using_subcommand mount" -l passthrough -d 'Let the kernel read, write and map the host\'s files directly, without requests; needs root and Linux 6.9'
complete -c transom -n "__fish_transom_using_subcommand mount" -l reconnect -d 'Survive the daemon: when it exits, connect to a new one; files stay open, and requests wait until then'
complete -c transom -n "__fish_transom_using_subcommand mount" -s f -d 'Stay in the foreground (the default)'
complete -c transom -n "__fish_transom_using_subcommand mount" -s b -l background -d 'Return once the share is mounted, and serve it in the background'
complete -c transom -n "__fish_transom_using_subcommand mount" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transom -n "__fish_transom_using_subcommand demo" -l daemon -d 'The daemon that serves the shares [default: transomd in this program\'s directory]' -r -F
complete -c transom -n "__fish_transom_using_subcommand demo" -l fetch -d 'Fetch QEMU as a package into the cache if it is not installed'
complete -c transom -n "__fish_transom_using_subcommand demo" -s h -l help -d 'Print help'
complete -c transom -n "__fish_transom_using_subcommand top" -s i -l interval -d 'Seconds between two readings; fractions are allowed [default: 1]' -r
complete -c transom -n "__fish_transom_using_subcommand top" -s 1 -l once -d 'Print one table and exit; without --interval, rates are averages since the daemon started'
complete -c transom -n "__fish_transom_using_subcommand top" -l json -d 'Print all metrics as one line of JSON for each socket, and exit'
complete -c transom -n "__fish_transom_using_subcommand top" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transom -n "__fish_transom_using_subcommand agent" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transom -n "__fish_transom_using_subcommand bench; and not __fish_seen_subcommand_from compare render cost cost-library round-trip library fio memory polling smoke workload" -l daemon -d 'A daemon: transomd, virtiofsd (1.14, built if needed), virtiofsd-c (of QEMU 7.2), or a program with virtiofsd\'s command line; the first one is compared with each other [default: transomd, virtiofsd]' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and not __fish_seen_subcommand_from compare render cost cost-library round-trip library fio memory polling smoke workload" -l shared-in -d 'Where to create the shared directory' -r -F
complete -c transom -n "__fish_transom_using_subcommand bench; and not __fish_seen_subcommand_from compare render cost cost-library round-trip library fio memory polling smoke workload" -l rounds -d 'Number of rounds; fewer than five give no ratios [default: that of the suite, otherwise 9]' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and not __fish_seen_subcommand_from compare render cost cost-library round-trip library fio memory polling smoke workload" -l out -d 'Directory for NAME.json, NAME.md and NAME.html' -r -F
complete -c transom -n "__fish_transom_using_subcommand bench; and not __fish_seen_subcommand_from compare render cost cost-library round-trip library fio memory polling smoke workload" -l name -d 'Name of these files [default: that of the suite or the subcommand]' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and not __fish_seen_subcommand_from compare render cost cost-library round-trip library fio memory polling smoke workload" -l socket -d 'The socket of a running daemon that waits for a front end; for --guest user, and for mount if it keeps serving' -r -F
complete -c transom -n "__fish_transom_using_subcommand bench; and not __fish_seen_subcommand_from compare render cost cost-library round-trip library fio memory polling smoke workload" -l suite -d 'The set of workloads' -r -f -a "quick\t'A first look: small files, blocks, trees; a minute'
seeds\t'The tables of the original virtio-fs and DAX proposals: smallfile, fio, page faults'
small\t'Small files, directories, fsync, and whole trees: unpacked, walked, built, installed, removed'
io\t'4 KiB and 1 MiB, sequential and random, cached and direct, and through mappings'
scale\t'1 to 16 jobs, 1,000 files to a million, 1 to 8 guests'
all\t'All except quick'"
complete -c transom -n "__fish_transom_using_subcommand bench; and not __fish_seen_subcommand_from compare render cost cost-library round-trip library fio memory polling smoke workload" -l groups -d 'Run only these groups of the suite' -r -f -a "small-files\t'Many small files: create, stat, readdir, open, rename, unlink'
tree\t'Creation and removal of directories'
blocks\t'Reads and writes of 4 KiB and 1 MiB in one file'
synced\t'Small writes, each followed by fsync'
mapped\t'Reads through a mapping'
trees\t'Whole trees: unpacked, walked, built, installed, removed'
smallfile\t'smallfile\'s six operations'
fio-psync\t'fio\'s psync engine: four patterns by one job and by four'
fio-queue\t'The same with sixteen operations of each job in flight'
fio-mmap\t'The same through shared mappings'
faults\t'Individual page faults'
entries\t'A mapping with page-table entries of 4 KiB and of 2 MiB'
jobs\t'Increasing numbers of jobs'
breadth\t'Increasing numbers of files'
guests\t'Increasing numbers of guests, each with one job'"
complete -c transom -n "__fish_transom_using_subcommand bench; and not __fish_seen_subcommand_from compare render cost cost-library round-trip library fio memory polling smoke workload" -l guest -d 'The kind of guest' -r -f -a "user\t'The guest library in this process: no kernel, no machine'
mount\t'This machine\'s kernel, on a mount of the share; cold workloads need root, to drop caches'
uml\t'User Mode Linux: an ordinary process, with the least overhead of its own'
qemu\t'A PC under KVM or emulation; runs any kernel'"
complete -c transom -n "__fish_transom_using_subcommand bench; and not __fish_seen_subcommand_from compare render cost cost-library round-trip library fio memory polling smoke workload" -l cache -d 'Cache modes of the daemons' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and not __fish_seen_subcommand_from compare render cost cost-library round-trip library fio memory polling smoke workload" -l scale -d 'Factor for the number of files and operations' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and not __fish_seen_subcommand_from compare render cost cost-library round-trip library fio memory polling smoke workload" -l placement -d 'Where the daemon runs, as seen from the guest [default: other-core for user, anywhere for mount, same-core for uml and qemu]' -r -f -a "same-core\t'On the guest\'s core: no other core has to wake up, but each side waits for the other'
other-core\t'On another core'
anywhere\t'Wherever the scheduler puts it'"
complete -c transom -n "__fish_transom_using_subcommand bench; and not __fish_seen_subcommand_from compare render cost cost-library round-trip library fio memory polling smoke workload" -l kernel -d 'The kernel that --guest uml or qemu boots [default: one is fetched or built]' -r -F
complete -c transom -n "__fish_transom_using_subcommand bench; and not __fish_seen_subcommand_from compare render cost cost-library round-trip library fio memory polling smoke workload" -l memory-mib -d 'Memory of a virtual machine, in MiB' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and not __fish_seen_subcommand_from compare render cost cost-library round-trip library fio memory polling smoke workload" -l dax-window-mib -d 'Also measure the first daemon with a DAX window of MIB; for --guest user and qemu. A single window comes before all others, several sizes come after the first daemon' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and not __fish_seen_subcommand_from compare render cost cost-library round-trip library fio memory polling smoke workload" -s o -l mount-options -d 'Also measure the first daemon with these options of transom mount; needs --guest mount. A single list comes before all others, several lists come after the first daemon' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and not __fish_seen_subcommand_from compare render cost cost-library round-trip library fio memory polling smoke workload" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transom -n "__fish_transom_using_subcommand bench; and not __fish_seen_subcommand_from compare render cost cost-library round-trip library fio memory polling smoke workload" -f -a "compare" -d 'Compare two result files'
complete -c transom -n "__fish_transom_using_subcommand bench; and not __fish_seen_subcommand_from compare render cost cost-library round-trip library fio memory polling smoke workload" -f -a "render" -d 'Make page and tables from a result file again'
complete -c transom -n "__fish_transom_using_subcommand bench; and not __fish_seen_subcommand_from compare render cost cost-library round-trip library fio memory polling smoke workload" -f -a "cost" -d 'What daemons execute for a request: instructions, system calls, allocations, copies, wakes'
complete -c transom -n "__fish_transom_using_subcommand bench; and not __fish_seen_subcommand_from compare render cost cost-library round-trip library fio memory polling smoke workload" -f -a "cost-library" -d 'Do an operation of the guest library for each byte on standard input: what `cost --library` counts'
complete -c transom -n "__fish_transom_using_subcommand bench; and not __fish_seen_subcommand_from compare render cost cost-library round-trip library fio memory polling smoke workload" -f -a "round-trip" -d 'Measure daemons alone, by requests from a driver without a guest'
complete -c transom -n "__fish_transom_using_subcommand bench; and not __fish_seen_subcommand_from compare render cost cost-library round-trip library fio memory polling smoke workload" -f -a "library" -d 'Measure operations of the guest library, by threads of this process'
complete -c transom -n "__fish_transom_using_subcommand bench; and not __fish_seen_subcommand_from compare render cost cost-library round-trip library fio memory polling smoke workload" -f -a "fio" -d 'Run fio in a Linux guest under QEMU: with and without DAX, other daemons, 9p'
complete -c transom -n "__fish_transom_using_subcommand bench; and not __fish_seen_subcommand_from compare render cost cost-library round-trip library fio memory polling smoke workload" -f -a "memory" -d 'Measure the daemons\' memory with very many inodes'
complete -c transom -n "__fish_transom_using_subcommand bench; and not __fish_seen_subcommand_from compare render cost cost-library round-trip library fio memory polling smoke workload" -f -a "polling" -d 'Compare settings of --poll-us: speed, processor time and wakes with idle and busy guests, and on a busy host'
complete -c transom -n "__fish_transom_using_subcommand bench; and not __fish_seen_subcommand_from compare render cost cost-library round-trip library fio memory polling smoke workload" -f -a "smoke" -d 'Run everything once, at minimal size'
complete -c transom -n "__fish_transom_using_subcommand bench; and not __fish_seen_subcommand_from compare render cost cost-library round-trip library fio memory polling smoke workload" -f -a "workload" -d 'Run workloads in a directory and print a JSON line for each: what runs inside a guest'
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from compare" -l daemon -d 'Only this daemon; may be repeated [default: all that are in both files]' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from compare" -l fail-below -d 'Exit with status 1 if the whole interval of any ratio is below this value, for example 0.9' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from compare" -s h -l help -d 'Print help'
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from render" -l html -d 'Write the page there instead of printing the tables' -r -F
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from render" -l svg -d 'Write a small picture of the ratios there, as SVG' -r -F
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from render" -s h -l help -d 'Print help'
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from cost" -l daemon -d 'A daemon: transomd, virtiofsd (1.14, built if needed), virtiofsd-c (of QEMU 7.2), or a program with virtiofsd\'s command line; the first one is compared with each other [default: transomd, virtiofsd]' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from cost" -l shared-in -d 'Where to create the shared directory' -r -F
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from cost" -l rounds -d 'Number of rounds; fewer than five give no ratios [default: that of the suite, otherwise 9]' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from cost" -l out -d 'Directory for NAME.json, NAME.md and NAME.html' -r -F
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from cost" -l name -d 'Name of these files [default: that of the suite or the subcommand]' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from cost" -l depth -d 'Requests that arrive together' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from cost" -l operations -d 'What is done [default: all]' -r -f -a "getattr\t'GETATTR of a file'
lookup\t'LOOKUP of a name whose inode the daemon knows'
lookup_absent\t'LOOKUP of a name that does not exist'
open\t'OPEN; the RELEASE is not counted'
read_4k\t'READ of 4 KiB'
write_4k\t'WRITE of 4 KiB'
read_1m\t'READ of 1 MiB'
write_1m\t'WRITE of 1 MiB'
readdir_10\t'READDIR of 10 entries'
readdirplus_10\t'READDIRPLUS of 10 entries, whose inodes the daemon knows'
list_new_10\t'OPENDIR, READDIRPLUS of 10 entries, whose inodes the daemon does not know, and RELEASEDIR; the BATCH_FORGET is not counted'
statfs\t'STATFS'
getxattr_absent\t'GETXATTR of `security.capability`, which the file does not have: what Linux asks before a write'
create_release_unlink\t'CREATE, RELEASE, UNLINK; the FORGET is not counted'
mkdir_rmdir\t'MKDIR, RMDIR; the FORGET is not counted'
rename\t'RENAME within a directory'
setattr\t'SETATTR of the mode'
flush\t'FLUSH'
fsync\t'FSYNC'"
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from cost" -l polling -d 'Count a transomd with --poll-us 0, as it is, or one after the other; other daemons do not poll' -r -f -a "off\t''
on\t''"
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from cost" -l baseline -d 'Compare the first daemon, one request at a time and without polling, with this file; exit with status 1 where it is worse' -r -F
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from cost" -l write-baseline -d 'Write this file instead of comparing with it' -r -F
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from cost" -l library -d 'Count what the guest library executes, over the first daemon, instead of what daemons do'
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from cost" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from cost-library" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from round-trip" -l daemon -d 'A daemon: transomd, virtiofsd (1.14, built if needed), virtiofsd-c (of QEMU 7.2), or a program with virtiofsd\'s command line; the first one is compared with each other [default: transomd, virtiofsd]' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from round-trip" -l shared-in -d 'Where to create the shared directory' -r -F
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from round-trip" -l rounds -d 'Number of rounds; fewer than five give no ratios [default: that of the suite, otherwise 9]' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from round-trip" -l out -d 'Directory for NAME.json, NAME.md and NAME.html' -r -F
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from round-trip" -l name -d 'Name of these files [default: that of the suite or the subcommand]' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from round-trip" -l placement -d 'Where the daemon runs' -r -f -a "same-core\t'On the guest\'s core: no other core has to wake up, but each side waits for the other'
other-core\t'On another core'
anywhere\t'Wherever the scheduler puts it'"
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from round-trip" -l depth -d 'Requests in flight' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from round-trip" -l operations -d 'Operations to measure [default: all]' -r -f -a "getattr\t'Attributes of a file'
lookup\t'A name that exists'
lookup_absent\t'A name that does not exist'
open_release\t'OPEN, RELEASE'
read_4k\t'4 KiB at a random offset'
write_4k\t'4 KiB at a random offset'
read_1m\t'1 MiB, sequential'
write_1m\t'1 MiB, sequential'
readdirplus_32\t'32 entries with attributes'
create_unlink\t'CREATE, RELEASE, UNLINK, FORGET'"
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from round-trip" -l scale -d 'Factor for the number of operations in a burst' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from round-trip" -l cache -d 'The daemons\' cache mode' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from round-trip" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from library" -l daemon -d 'A daemon: transomd, virtiofsd (1.14, built if needed), virtiofsd-c (of QEMU 7.2), or a program with virtiofsd\'s command line; the first one is compared with each other [default: transomd, virtiofsd]' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from library" -l shared-in -d 'Where to create the shared directory' -r -F
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from library" -l rounds -d 'Number of rounds; fewer than five give no ratios [default: that of the suite, otherwise 9]' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from library" -l out -d 'Directory for NAME.json, NAME.md and NAME.html' -r -F
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from library" -l name -d 'Name of these files [default: that of the suite or the subcommand]' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from library" -l placement -d 'Where the daemon runs' -r -f -a "same-core\t'On the guest\'s core: no other core has to wake up, but each side waits for the other'
other-core\t'On another core'
anywhere\t'Wherever the scheduler puts it'"
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from library" -l depth -d 'Requests in flight' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from library" -l operations -d 'Operations to measure [default: all]' -r -f -a "getattr\t'Attributes of an open file'
lookup\t'A name looked up and forgotten'
read_4k\t'4 KiB at a random offset, into ordinary memory'
write_4k\t'4 KiB at a random offset, from ordinary memory'
read_4k_shared\t'4 KiB at a random offset, into memory that the daemon shares'
write_4k_shared\t'4 KiB at a random offset, from memory that the daemon shares'
read_1m\t'1 MiB, sequential, into memory that the daemon shares'
write_1m\t'1 MiB, sequential, from memory that the daemon shares'
read_1m_copied\t'1 MiB, sequential, into ordinary memory'
create_unlink\t'Create, close, remove and forget a file'
stat_warm\t'Attributes of a path of four names, all cached by the library'
read_4k_warm\t'4 KiB at a random offset, cached by the library; on the host, a copy from memory'"
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from library" -l scale -d 'Factor for the number of operations in a burst' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from library" -l cache -d 'The daemons\' cache mode' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from library" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from fio" -l transomd -d 'The transomd to measure [default: the one next to this program]' -r -F
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from fio" -l virtiofsd -d 'The virtiofsd to compare it with [default: 1.14, built if needed]' -r -F
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from fio" -l qemu -d 'QEMU with a window [default: the machine\'s, or a newer Debian\'s from the cache]' -r -F
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from fio" -l kernel -d 'The kernel: an image, or a Debian series' -r -F
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from fio" -l shared-in -d 'Where to create the shared directory; for direct I/O, on a disk' -r -F
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from fio" -l rounds -d 'Number of rounds' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from fio" -l seconds -d 'Seconds of each fio run' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from fio" -l warm-up -d 'Warm-up of each run in seconds, not measured: files are mapped, caches fill' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from fio" -l file-mib -d 'Size of each file, in MiB; each fio job has one, at most four' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from fio" -l window-mib -d 'Size of the window, in MiB' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from fio" -l memory-mib -d 'Memory of the guest, in MiB' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from fio" -l cpus -d 'Virtual processors of the guest' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from fio" -l only -d 'Only configurations whose names contain one of these words' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from fio" -l out -d 'Write NAME.json, NAME.md and NAME.html there' -r -F
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from fio" -l name -d 'Name of these files' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from fio" -s h -l help -d 'Print help'
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from memory" -l daemon -d 'A daemon: transomd, virtiofsd (1.14, built if needed), virtiofsd-c (of QEMU 7.2), or a program with virtiofsd\'s command line; the first one is compared with each other [default: transomd, virtiofsd]' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from memory" -l shared-in -d 'Where to create the shared directory' -r -F
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from memory" -l rounds -d 'Number of rounds; fewer than five give no ratios [default: that of the suite, otherwise 9]' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from memory" -l out -d 'Directory for NAME.json, NAME.md and NAME.html' -r -F
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from memory" -l name -d 'Name of these files [default: that of the suite or the subcommand]' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from memory" -l inodes -d 'Number of files to look up' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from memory" -s h -l help -d 'Print help'
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from polling" -l daemon -d 'The daemon, which has to know --poll-us' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from polling" -l poll-us -d 'Values of --poll-us, beside the daemon\'s default' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from polling" -l scenes -d 'What guests and host do [default: all]' -r -f -a "idle\t'One guest that has been busy, and does nothing'
one-busy\t'One guest that reads 4 KiB at a time'
eight-busy\t'Eight such guests on two cores'
host-computes\t'One such guest, while a thread computes on each of two cores'"
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from polling" -l rounds -d 'Number of rounds' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from polling" -l seconds -d 'Seconds that each sample takes; an idle share is watched for this long' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from polling" -l shared-in -d 'Where to create the shared directory' -r -F
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from polling" -l out -d 'Directory for polling.json and polling.md' -r -F
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from polling" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from smoke" -l daemon -d 'The daemons to try' -r
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from smoke" -l guest -d 'The guests to try' -r -f -a "user\t'The guest library in this process: no kernel, no machine'
mount\t'This machine\'s kernel, on a mount of the share; cold workloads need root, to drop caches'
uml\t'User Mode Linux: an ordinary process, with the least overhead of its own'
qemu\t'A PC under KVM or emulation; runs any kernel'"
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from smoke" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from workload" -l forget -d 'How caches are emptied' -r -f -a "nothing\t'Not at all: cold workloads run with warm caches. For the bare directory'
names\t'Names, inodes and their data, on the whole machine; needs root. For a mount on this machine'
all\t'Everything; for a guest, which does nothing else'
impossible\t'Impossible: cold workloads are refused'"
complete -c transom -n "__fish_transom_using_subcommand bench; and __fish_seen_subcommand_from workload" -s h -l help -d 'Print help (see more with \'--help\')'
