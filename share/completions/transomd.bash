_transomd() {
    local i cur prev opts cmd
    COMPREPLY=()
    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
        cur="$2"
    else
        cur="${COMP_WORDS[COMP_CWORD]}"
    fi
    prev="$3"
    cmd=""
    opts=""

    for i in "${COMP_WORDS[@]:0:COMP_CWORD}"
    do
        case "${cmd},${i}" in
            ",$1")
                cmd="transomd"
                ;;
            *)
                ;;
        esac
    done

    case "${cmd}" in
        transomd)
            opts="-o -d -f -h -V --socket-path --socket-group --fd --keep-serving --upgradable --resilient --upgrade --check --socket --print-capabilities --shared-dir --tag --readonly --overlay --upper-layer --quota --events --events-validity --notification-queue --announce-submounts --no-announce-submounts --hide --hide-contents --hide-name --show --cache --writeback --allow-mmap --allow-direct-io --negative-timeout --coherence-group --no-readdirplus --xattr --xattrmap --posix-acl --security-label --killpriv-v2 --no-killpriv-v2 --preserve-noatime --birth-times --squash-to --squash-as --translate-uid --translate-gid --uid-map --gid-map --dax-window --dax-policy --no-dax-guard --front-end --posix-lock --no-posix-lock --flock --no-flock --queue-num --num-request-queues --thread-pool-size --poll-us --rate --inode-file-handles --max-fds --inode-limit --rlimit-nofile --host-changes --sandbox --seccomp --modcaps --migration-mode --migration-on-error --migration-verify-handles --migration-confirm-paths --migration-locks --log-level --syslog --metrics-socket --help --version"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 1 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --socket-path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --socket-group)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --upgrade)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --socket)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --shared-dir)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tag)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --overlay)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --quota)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --events)
                    COMPREPLY=($(compgen -W "always auto never" -- "${cur}"))
                    return 0
                    ;;
                --events-validity)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hide)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hide-contents)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hide-name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --show)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cache)
                    COMPREPLY=($(compgen -W "never metadata auto always" -- "${cur}"))
                    return 0
                    ;;
                --negative-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --coherence-group)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --xattrmap)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --posix-acl)
                    COMPREPLY=($(compgen -W "never auto always" -- "${cur}"))
                    return 0
                    ;;
                --security-label)
                    COMPREPLY=($(compgen -W "never auto always" -- "${cur}"))
                    return 0
                    ;;
                --squash-to)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --squash-as)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --translate-uid)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --translate-gid)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --uid-map)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --gid-map)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --dax-window)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --dax-policy)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --front-end)
                    COMPREPLY=($(compgen -W "auto qemu crosvm alioth generic passthrough" -- "${cur}"))
                    return 0
                    ;;
                --num-request-queues)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --queue-num)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --thread-pool-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --poll-us)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --rate)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --inode-file-handles)
                    COMPREPLY=($(compgen -W "never prefer mandatory" -- "${cur}"))
                    return 0
                    ;;
                --max-fds)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --inode-limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --rlimit-nofile)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --host-changes)
                    COMPREPLY=($(compgen -W "auto never prefer mandatory" -- "${cur}"))
                    return 0
                    ;;
                --sandbox)
                    COMPREPLY=($(compgen -W "namespace chroot none" -- "${cur}"))
                    return 0
                    ;;
                --seccomp)
                    COMPREPLY=($(compgen -W "none kill log trap" -- "${cur}"))
                    return 0
                    ;;
                --modcaps)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --migration-mode)
                    COMPREPLY=($(compgen -W "find-paths file-handles" -- "${cur}"))
                    return 0
                    ;;
                --migration-on-error)
                    COMPREPLY=($(compgen -W "abort guest-error" -- "${cur}"))
                    return 0
                    ;;
                --migration-locks)
                    COMPREPLY=($(compgen -W "refuse carry" -- "${cur}"))
                    return 0
                    ;;
                --log-level)
                    COMPREPLY=($(compgen -W "error warn info debug trace off" -- "${cur}"))
                    return 0
                    ;;
                --metrics-socket)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -o)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
    esac
}

if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _transomd -o nosort -o bashdefault -o default transomd
else
    complete -F _transomd -o bashdefault -o default transomd
fi
