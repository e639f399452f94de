//! Options as they are given and what they come to.

use super::*;
use clap::error::ErrorKind;
use transom_host::idmap::Rule;

fn serve(line: &str) -> Options {
    match parse(std::iter::once("transomd").chain(line.split_whitespace())) {
        Ok(Invocation::Serve(options)) => *options,
        other => panic!("{line}: {other:?}"),
    }
}

fn refused(line: &str) -> clap::Error {
    match parse(std::iter::once("transomd").chain(line.split_whitespace())) {
        Err(error) => error,
        other => panic!("{line}: {other:?}"),
    }
}

const BASE: &str = "--socket-path /s --shared-dir /d";

#[test]
fn defaults_are_those_of_virtiofsd() {
    let options = serve(BASE);

    assert_eq!(options.socket.endpoint, Endpoint::Path { path: "/s".into(), group: None });
    assert_eq!(options.share.path, PathBuf::from("/d"));
    assert!(options.share.announce_submounts && !options.share.is_readonly && options.share.tag.is_none());
    assert_eq!(options.cache.policy, CachePolicy::Auto);
    assert!(options.cache.readdirplus && !options.cache.writeback);
    assert!(!options.attributes.xattr && !options.attributes.killpriv_v2);
    assert_eq!(options.attributes.posix_acl, Negotiation::Never);
    assert_eq!(options.isolation.sandbox, SandboxMode::Namespace);
    assert_eq!(options.isolation.seccomp, SeccompMode::Kill);
    assert_eq!(options.inodes.file_handles, FileHandles::Prefer);
    assert_eq!(options.migration.mode, MigrationMode::FindPaths);
    assert_eq!(options.migration.on_error, MigrationOnError::Abort);
    assert_eq!(options.log.level, LogLevel::Info);
    assert!(!options.locks.posix && !options.locks.flock && !options.socket.keep_serving);
    assert!(options.remarks.is_empty());
}

#[test]
fn the_last_of_an_option_wins() {
    let options = serve(&format!("{BASE} --cache never --cache=always --shared-dir /e --readonly --readonly"));

    assert_eq!(options.cache.policy, CachePolicy::Always);
    assert_eq!(options.share.path, PathBuf::from("/e"));
    assert!(options.share.is_readonly);
}

#[test]
fn the_last_of_opposite_options_wins() {
    assert!(!serve(&format!("{BASE} --announce-submounts --no-announce-submounts")).share.announce_submounts);
    assert!(serve(&format!("{BASE} --no-announce-submounts --announce-submounts")).share.announce_submounts);
    assert!(serve(&format!("{BASE} --no-killpriv-v2 --killpriv-v2")).attributes.killpriv_v2);
    assert!(!serve(&format!("{BASE} --killpriv-v2 --no-killpriv-v2")).attributes.killpriv_v2);
    assert!(!serve(&format!("{BASE} --flock --no-flock")).locks.flock);
    assert!(serve(&format!("{BASE} --no-posix-lock --posix-lock")).locks.posix);
}

#[test]
fn lists_apply_after_all_other_options_and_in_order() {
    let options = serve("-o cache=none,xattr,source=/a,cache=always,no_xattr --cache auto --xattr --socket-path /s");

    assert_eq!(options.cache.policy, CachePolicy::Always);
    assert!(!options.attributes.xattr);
    assert_eq!(options.share.path, PathBuf::from("/a"));
    assert_eq!(options.remarks.len(), 1);
}

#[test]
fn lists_split_at_every_comma_and_equals_sign() {
    // 1. Management software doubles commas within a path, which leaves an empty entry.
    assert_eq!(refused("--fd 3 -o source=/a,,b").kind(), ErrorKind::UnknownArgument);
    // 2. An equals sign within a value makes three fields.
    assert_eq!(refused("--fd 3 -o source=/a=b").kind(), ErrorKind::UnknownArgument);
    // 3. A path without either passes.
    assert_eq!(serve("--fd 3 -o source=/a+b").share.path, PathBuf::from("/a+b"));
}

#[test]
fn list_entries_have_their_own_words() {
    assert_eq!(serve("--fd 3 -o source=/a,cache=none").cache.policy, CachePolicy::Never);
    assert_eq!(refused("--fd 3 -o source=/a,cache=never").kind(), ErrorKind::InvalidValue);
    assert_eq!(refused("--fd 3 -o source=/a,sandbox=none").kind(), ErrorKind::InvalidValue);
    assert_eq!(serve("--fd 3 -o source=/a,loglevel=err").log.level, LogLevel::Error);
    assert_eq!(refused("--fd 3 -o source=/a,loglevel=error").kind(), ErrorKind::InvalidValue);
    assert_eq!(refused("--fd 3 -o source=/a,no_announce_submounts").kind(), ErrorKind::UnknownArgument);
    assert_eq!(refused("--fd 3 -o source=/a,dax").kind(), ErrorKind::UnknownArgument);
    assert_eq!(serve("--fd 3 -o source=/a,posix_acl").attributes.posix_acl, Negotiation::Always);
    let locks = serve("--fd 3 -o source=/a,flock,posix_lock").locks;
    assert!(locks.flock && locks.posix);
    let locks = serve("--fd 3 -o source=/a,no_flock,no_posix_lock").locks;
    assert!(!locks.flock && !locks.posix);
}

#[test]
fn access_control_lists_and_labels_turn_on_extended_attributes() {
    for given in ["--posix-acl", "--posix-acl=auto", "--security-label=always", "--xattrmap :map::user.x.:"] {
        assert!(serve(&format!("{BASE} {given}")).attributes.xattr, "{given}");
    }
    assert_eq!(serve(&format!("{BASE} --posix-acl")).attributes.posix_acl, Negotiation::Always);
    assert_eq!(serve(&format!("{BASE} --posix-acl=auto")).attributes.posix_acl, Negotiation::Auto);
    assert!(!serve(&format!("{BASE} --posix-acl=never")).attributes.xattr);
}

#[test]
fn what_is_missing_or_excluded_is_a_usage_error() {
    for line in [
        "--shared-dir /d",
        "--socket-path /s",
        "--fd 3 --socket-path /s --shared-dir /d",
        "--fd 3 --socket-group kvm --shared-dir /d",
        "--fd 3 -o xattr",
        "--fd 3 --shared-dir /d --translate-uid map:0:1:1 --posix-acl",
        "--fd 3 --shared-dir /d --squash-to self --posix-acl=auto",
        "--fd 3 --shared-dir /d --translate-uid guest:0:100:10 --translate-uid guest:5:200:10",
        "--fd 3 --shared-dir /d --translate-gid map:0:100:10 --translate-gid squash-guest:5:200:10",
        "--fd 3 --shared-dir /d --xattrmap nonsense",
        "--fd 3 --shared-dir /d -o xattrmap=nonsense",
        "--fd 3 --shared-dir /d --squash-to self --translate-uid map:0:1:1",
        "--fd 3 --shared-dir /d --uid-map :0:1:1: --sandbox none",
        "--fd 3 --shared-dir /d --migration-mode file-handles --migration-confirm-paths",
        "--fd 3 --shared-dir /d --migration-mode file-handles --inode-file-handles never",
        "--fd 3 --shared-dir /d --migration-mode by-name",
        "--fd 3 --shared-dir /d --modcaps=-dac_read_search",
        "--fd 3 --shared-dir /d --modcaps=chown",
        "--fd 3 --shared-dir /d --modcaps=+nonsense",
        "--fd 3 --shared-dir /d --tag 1234567890123456789012345678901234567",
        "--fd 3 --shared-dir /d --cache sometimes",
        "--fd 3 --shared-dir /d --posix-acl auto",
        "--fd 3 --shared-dir /d --num-request-queues 0",
        "--fd 3 --shared-dir /d surplus",
    ] {
        let error = refused(line);
        assert_eq!(error.exit_code(), 2, "{line}");
        assert!(error.to_string().starts_with("error: "), "{line}: {error}");
    }
}

#[test]
fn capabilities_can_be_asked_for_with_nothing_else() {
    let answer = parse(["transomd", "--print-capabilities"]).expect("it needs no other option");

    assert!(matches!(answer, Invocation::PrintCapabilities));
}

#[test]
fn ranges_of_the_namespace_are_read_with_any_delimiter() {
    let range = NamespaceRange { inside: 0, outside: 100_000, count: 65536 };

    assert_eq!(":0:100000:65536:".parse(), Ok(range));
    assert_eq!("/0/100000/65536/".parse(), Ok(range));
    assert_eq!(range.to_string(), ":0:100000:65536:");
    for text in
        ["", ":", "0:1:2", ":0:1:2", "::0:1:2::", ":0:1:", ":0:1:2:3:", "a0a1a2a", ":0:-1:2:", ":0:1:4294967296:"]
    {
        assert!(text.parse::<NamespaceRange>().is_err(), "{text}");
    }
}

#[test]
fn a_squash_preset_is_two_rules_over_all_ids() {
    let daemon = Owner { uid: 1000, gid: 100 };

    let own = serve(&format!("{BASE} --squash-to self")).ownership.squash.expect("it was given");
    let (uids, gids) = own.rules(daemon);
    assert_eq!(uids[0], Rule::SquashGuest { guest: 0, host: 1000, count: u32::MAX });
    assert_eq!(uids[1], Rule::SquashHost { host: 0, guest: 0, count: u32::MAX });
    assert_eq!(gids[0], Rule::SquashGuest { guest: 0, host: 100, count: u32::MAX });

    let other = serve(&format!("{BASE} --squash-to 7:8 --squash-as 5:6")).ownership.squash.expect("it was given");
    let (uids, gids) = other.rules(daemon);
    assert_eq!(uids[0], Rule::SquashGuest { guest: 0, host: 7, count: u32::MAX });
    assert_eq!(gids[1], Rule::SquashHost { host: 0, guest: 6, count: u32::MAX });
}

#[test]
fn changes_of_capabilities_keep_their_order() {
    use caps::Capability::*;
    let changes = serve(&format!("{BASE} --modcaps=+dac_read_search:-mknod:+SYS_ADMIN")).isolation.capability_changes;

    let flat: Vec<_> = changes.iter().map(|change| (change.is_kept, change.capability)).collect();
    assert_eq!(flat, [(true, CAP_DAC_READ_SEARCH), (false, CAP_MKNOD), (true, CAP_SYS_ADMIN)]);
}

/// Asserts that `option` is refused with each of the other options, by an error that has the text beside it.
#[track_caller]
fn excludes(option: &str, others: &[(&str, &str)]) {
    for (other, text) in others {
        let error = refused(&format!("{BASE} {option} {other}"));
        assert_eq!(error.kind(), ErrorKind::ArgumentConflict, "{other}");
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn an_overlay_is_refused_with_what_excludes_it() {
    let options = serve(&format!("{BASE} --overlay /layers"));
    assert_eq!(options.share.layer, Some(PathBuf::from("/layers")));
    assert_eq!(serve(&format!("{BASE} --overlay /layers --events=auto")).share.events, Events::Never);
    excludes(
        "--overlay /layers",
        &[
            ("--sandbox none", "--sandbox namespace"),
            ("--sandbox chroot", "--sandbox namespace"),
            ("--readonly", "--readonly"),
            ("--events", "--events"),
            ("--notification-queue --tag t", "--notification-queue"),
            ("--coherence-group g", "--coherence-group"),
            ("--host-changes prefer", "--host-changes"),
            ("--upgradable", "--upgradable"),
        ],
    );
}

#[test]
fn a_negative_timeout_is_refused_with_what_excludes_it() {
    assert_eq!(serve(BASE).cache.negative_timeout, Duration::ZERO);
    let options = serve(&format!("{BASE} --negative-timeout 60"));
    assert_eq!(options.cache.negative_timeout, Duration::from_secs(60));
    let others = [
        ("--cache never", "--cache never"),
        ("-o cache=none", "--cache never"),
        ("--events", "--events"),
        ("--notification-queue --tag t", "--notification-queue"),
        ("--coherence-group g", "--coherence-group"),
    ];
    excludes("--negative-timeout 1", &others);
    assert_eq!(serve(&format!("{BASE} --negative-timeout 1 --events=auto")).share.events, Events::Never);
    assert_eq!(serve(&format!("{BASE} --negative-timeout 0 --events=auto")).share.events, Events::Auto);
    for (other, _) in others {
        serve(&format!("{BASE} --negative-timeout 0 {other}"));
    }
    assert_eq!(refused(&format!("{BASE} --negative-timeout 86401")).kind(), ErrorKind::ValueValidation);
}

#[test]
fn a_notification_queue_needs_a_tag() {
    assert!(serve(&format!("{BASE} --notification-queue --tag t")).share.notification_queue);
    let error = refused(&format!("{BASE} --notification-queue"));
    assert!(error.to_string().contains("--tag"), "{error}");
}

#[test]
fn what_a_journal_does_not_record_excludes_resilience() {
    let socket = serve(&format!("{BASE} --resilient")).socket;
    assert!(socket.resilient && socket.upgradable);
    assert_eq!(serve(&format!("{BASE} --resilient --events=auto")).share.events, Events::Never);
    for others in [
        "--dax-window 64M --tag t",
        "--coherence-group g",
        "--events",
        "--notification-queue --tag t",
        "--host-changes prefer",
        "--overlay /layers",
        "--quota 1M",
    ] {
        let error = refused(&format!("{BASE} --resilient {others}"));
        assert_eq!(error.kind(), ErrorKind::ArgumentConflict, "{others}");
        assert!(error.to_string().contains("--resilient"), "{error}");
    }
}

#[test]
fn a_quota_is_refused_with_what_it_cannot_hold_against() {
    let quota = serve(&format!("{BASE} --quota 10G,files=5")).share.quota;
    assert_eq!(quota, Some(QuotaLimits { bytes: 10 << 30, files: Some(5) }));
    assert_eq!(serve(BASE).share.quota, None);
    for (others, named) in [
        ("--readonly", "--readonly"),
        ("--dax-window 2M --tag t", "--dax-window"),
        ("--upgradable", "--upgradable"),
        ("--resilient", "--resilient"),
    ] {
        let error = refused(&format!("{BASE} --quota 1M {others}"));
        assert_eq!(error.kind(), ErrorKind::ArgumentConflict, "{others}");
        assert!(error.to_string().contains(named), "{error}");
    }
    assert_eq!(refused(&format!("{BASE} --quota 1M,inodes=5")).kind(), ErrorKind::ValueValidation);
}
