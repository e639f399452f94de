//! Builds `Options` from flags: applies the `-o` lists, checks for conflicts, and notes deprecated options.

use super::cli::{Cli, ShareArgs};
use super::legacy;
use super::values::{Events, FileHandles, HostChanges, LogLevel, MigrationMode, Negotiation, SandboxMode};
use super::{
    AttributeOptions, CacheOptions, CachePolicy, Endpoint, InodeOptions, Invocation, IsolationOptions, LockOptions,
    LogOptions, MigrationOptions, Options, OwnershipOptions, ShareOptions, SocketOptions, Squash, WindowOptions,
    WorkerOptions,
};
use clap::error::{Error, ErrorKind};
use std::{fmt::Display, os::unix::ffi::OsStrExt as _, path::PathBuf, time::Duration};
use transom_host::{
    idmap::{GidMap, UidMap},
    passthrough::HiddenPaths,
    survival::{Feature, Way},
    window::FrontEnd,
    xattrmap::XattrMap,
};

/// The default number of request queues: as many as a larger guest has processors to use them with.
const REQUEST_QUEUES: u16 = 8;

/// The default with a window: the value in the examples of generic devices, whose queues share one interrupt anyway.
const REQUEST_QUEUES_WITH_WINDOW: u16 = 1;

/// Builds the configuration. Errors are usage errors, not yet formatted.
pub(super) fn resolve(mut cli: Cli) -> Result<Invocation, Error> {
    if cli.socket.print_capabilities {
        return Ok(Invocation::PrintCapabilities);
    }
    if let Some(socket) = cli.socket.upgrade {
        return Ok(Invocation::Upgrade(socket));
    }
    for list in cli.legacy.compat_options.take().into_iter().flatten() {
        legacy::apply(&list, &mut cli).map_err(|error| {
            let kind = match error {
                legacy::LegacyError::Value { .. } => ErrorKind::InvalidValue,
                legacy::LegacyError::Unknown { .. } => ErrorKind::UnknownArgument,
            };
            Error::raw(kind, format!("{error}\n"))
        })?;
        remark(&mut cli, "-o is deprecated: write each option on its own, as in '--cache auto'");
    }
    check(&cli)?;
    note_deprecated(&mut cli);

    let share_path = cli.share.shared_dir.take().ok_or_else(|| {
        Error::raw(ErrorKind::MissingRequiredArgument, "--shared-dir DIR, or -o source=DIR, is missing\n")
    })?;
    Ok(Invocation::Serve(Box::new(options(cli, share_path))))
}

fn check(cli: &Cli) -> Result<(), Error> {
    let conflict = |text: String| Err(Error::raw(ErrorKind::ArgumentConflict, text + "\n"));
    let owners = &cli.ownership;
    let translates = !owners.translate_uid.is_empty() || !owners.translate_gid.is_empty() || owners.squash_to.is_some();
    if cli.attributes.posix_acl != Negotiation::Never && translates {
        return conflict(
            "--posix-acl excludes --translate-uid, --translate-gid and --squash-to: \
             the ids within access control lists are not translated"
                .into(),
        );
    }
    // Report these now: management software that waits for the message that the daemon is ready would see them too
    // late.
    let invalid = |option: &str, error: &dyn Display| {
        Error::raw(ErrorKind::ValueValidation, format!("invalid value for '{option}': {error}\n"))
    };
    if let Some(rules) = &cli.attributes.xattrmap {
        rules.parse::<XattrMap>().map_err(|error| invalid("--xattrmap", &error))?;
    }
    UidMap::new(&owners.translate_uid).map_err(|error| invalid("--translate-uid", &error))?;
    GidMap::new(&owners.translate_gid).map_err(|error| invalid("--translate-gid", &error))?;
    let has_maps = !owners.uid_map.is_empty() || !owners.gid_map.is_empty();
    if has_maps && cli.isolation.sandbox != SandboxMode::Namespace {
        return conflict("--uid-map and --gid-map need --sandbox namespace: they describe a user namespace".into());
    }
    let migration = &cli.migration;
    let checks_paths = migration.migration_verify_handles || migration.migration_confirm_paths;
    if migration.migration_mode == MigrationMode::FileHandles && checks_paths {
        return conflict(
            "--migration-mode file-handles excludes --migration-verify-handles and --migration-confirm-paths: \
             handles need no check"
                .into(),
        );
    }
    if migration.migration_mode == MigrationMode::FileHandles && cli.workers.inode_file_handles == FileHandles::Never {
        return conflict(
            "--migration-mode file-handles needs --inode-file-handles prefer or mandatory: handles are to be opened"
                .into(),
        );
    }
    if cli.share.events == Events::Always && cli.cache.writeback {
        return conflict(
            "--events excludes --writeback: a guest that collects writes ignores the host's sizes and times".into(),
        );
    }
    if cli.share.notification_queue && cli.share.tag.is_none() {
        return conflict(
            "--notification-queue needs --tag: the driver reads the size of a notification beside the tag".into(),
        );
    }
    let obstacle = quota_obstacle(cli)
        .or_else(|| overlay_obstacle(cli))
        .or_else(|| negative_timeout_obstacle(cli))
        .map(str::to_owned);
    if let Some(reason) = obstacle.or_else(|| survival_obstacle(cli)) {
        return conflict(reason);
    }
    if let Some(len_bytes) = cli.window.dax_window {
        let front_end = FrontEnd::from(cli.window.front_end);
        let most_bytes = front_end.window_len_max();
        if len_bytes > most_bytes {
            return conflict(format!(
                "--dax-window {len_bytes} is more than the front end bears: it keeps {} mappings of 2 MiB at the most, \
                 and so a window of {most_bytes} bytes",
                front_end.mappings_max
            ));
        }
        if cli.share.tag.is_none() {
            return conflict(
                "--dax-window needs --tag: front ends that have a window ask the daemon for the tag".into(),
            );
        }
    }
    let drops_read_search = cli.isolation.modcaps.as_ref().is_some_and(|changes| {
        let last = changes.0.iter().rev().find(|change| change.capability == caps::Capability::CAP_DAC_READ_SEARCH);
        last.is_some_and(|change| !change.is_kept)
    });
    if drops_read_search && cli.workers.inode_file_handles != FileHandles::Never {
        return conflict(
            "--modcaps -dac_read_search needs --inode-file-handles never: handles are opened with that capability"
                .into(),
        );
    }
    Ok(())
}

/// Returns why the share cannot be an overlay, if it is to be one.
fn overlay_obstacle(cli: &Cli) -> Option<&'static str> {
    cli.share.overlay.as_ref()?;
    if cli.isolation.sandbox != SandboxMode::Namespace {
        return Some("--overlay needs --sandbox namespace: the overlay is mounted for the daemon alone");
    }
    if cli.share.readonly {
        return Some("--overlay excludes --readonly: there would be nothing to keep");
    }
    if cli.share.events == Events::Always {
        return Some("--overlay excludes --events: the kernel reports no changes below an overlay");
    }
    if cli.share.notification_queue {
        return Some("--overlay excludes --notification-queue: the kernel reports no changes below an overlay");
    }
    if matches!(cli.changes.host_changes, HostChanges::Prefer | HostChanges::Mandatory) {
        return Some("--overlay excludes --host-changes: the kernel reports no changes below an overlay");
    }
    if cli.cache.coherence_group.is_some() {
        return Some("--overlay excludes --coherence-group: the others do not see this guest's changes");
    }
    None
}

/// Returns why there cannot be a quota, if there is to be one.
fn quota_obstacle(cli: &Cli) -> Option<&'static str> {
    cli.share.quota?;
    if cli.share.readonly {
        return Some("--quota excludes --readonly: the guest adds nothing");
    }
    if cli.window.dax_window.is_some() {
        return Some("--quota excludes --dax-window: the guest fills holes of files that it maps without a request");
    }
    None
}

/// Returns why `--negative-timeout` cannot be used, if it is.
fn negative_timeout_obstacle(cli: &Cli) -> Option<&'static str> {
    if cli.cache.negative_timeout == 0 {
        return None;
    }
    if cli.cache.cache == CachePolicy::Never {
        return Some("--negative-timeout excludes --cache never: the guest caches no names");
    }
    if cli.share.events == Events::Always || cli.share.notification_queue || cli.cache.coherence_group.is_some() {
        return Some(
            "--negative-timeout excludes --events, --notification-queue and --coherence-group: with these the guest \
             sees new names at once",
        );
    }
    None
}

/// Returns why the session cannot go on elsewhere as it is to, with what else the share is to have.
fn survival_obstacle(cli: &Cli) -> Option<String> {
    let (option, way) = match (cli.socket.resilient, cli.socket.upgradable) {
        (true, _) => ("--resilient", Way::Restart),
        (false, true) => ("--upgradable", Way::Upgrade),
        (false, false) => return None,
    };
    let features = [
        (cli.window.dax_window.is_some(), Feature::Window),
        (cli.share.overlay.is_some(), Feature::Overlay),
        (cli.share.events == Events::Always, Feature::Events),
        (cli.share.notification_queue, Feature::Notifications),
        (matches!(cli.changes.host_changes, HostChanges::Prefer | HostChanges::Mandatory), Feature::HostChanges),
        (cli.cache.coherence_group.is_some(), Feature::CoherenceGroup),
        (cli.share.quota.is_some(), Feature::Quota),
    ];
    let obstacle = features.into_iter().filter(|(is_used, _)| *is_used).find_map(|(_, one)| one.exclusion(way))?;
    Some(format!("{option} excludes {}: {}", obstacle.option, obstacle.reason))
}

fn note_deprecated(cli: &mut Cli) {
    if cli.legacy.foreground {
        remark(cli, "-f is deprecated and has no effect");
    }
    if cli.legacy.debug {
        remark(cli, "-d is deprecated: write '--log-level debug'");
    }
    if cli.socket.socket.is_some() {
        remark(cli, "--socket is deprecated: write '--socket-path'");
    }
}

fn remark(cli: &mut Cli, text: &str) {
    if !cli.remarks.iter().any(|known| known == text) {
        cli.remarks.push(text.to_owned());
    }
}

fn hidden(share: &ShareArgs) -> HiddenPaths {
    let mut hidden = HiddenPaths::default();
    share.hide.iter().for_each(|path| hidden.hide(path));
    share.hide_contents.iter().for_each(|path| hidden.hide_contents(path));
    share.hide_name.iter().for_each(|name| hidden.hide_name(name.as_bytes()));
    share.show.iter().for_each(|path| hidden.show(path));
    hidden
}

fn options(cli: Cli, share_path: PathBuf) -> Options {
    let attributes = &cli.attributes;
    let implies_xattr = attributes.xattrmap.is_some()
        || attributes.posix_acl != Negotiation::Never
        || attributes.security_label != Negotiation::Never;
    let hidden = hidden(&cli.share);
    let is_in_group = cli.cache.coherence_group.is_some();
    let excludes_events =
        cli.cache.writeback || cli.share.overlay.is_some() || cli.cache.negative_timeout != 0 || cli.socket.resilient;
    Options {
        share: ShareOptions {
            path: share_path,
            tag: cli.share.tag,
            layer: cli.share.overlay,
            is_readonly: cli.share.readonly,
            is_upper_layer: cli.share.upper_layer,
            quota: cli.share.quota,
            announce_submounts: !cli.share.no_announce_submounts,
            events: if excludes_events { Events::Never } else { cli.share.events },
            notification_queue: cli.share.notification_queue,
            events_validity: Duration::from_secs(cli.share.events_validity.into()),
            hidden,
        },
        cache: CacheOptions {
            policy: cli.cache.cache,
            writeback: cli.cache.writeback,
            allow_mmap: cli.cache.allow_mmap,
            allow_direct_io: cli.cache.allow_direct_io,
            coherence_group: cli.cache.coherence_group,
            // Attributes that the guest must not cache are not worth fetching.
            readdirplus: !cli.cache.no_readdirplus && cli.cache.cache != CachePolicy::Never,
            negative_timeout: Duration::from_secs(cli.cache.negative_timeout.into()),
        },
        attributes: AttributeOptions {
            xattr: attributes.xattr || implies_xattr,
            xattr_rules: cli.attributes.xattrmap,
            posix_acl: cli.attributes.posix_acl,
            security_label: cli.attributes.security_label,
            killpriv_v2: cli.attributes.killpriv_v2,
            preserve_noatime: cli.attributes.preserve_noatime,
            birth_times: cli.attributes.birth_times,
        },
        ownership: OwnershipOptions {
            namespace_uids: cli.ownership.uid_map,
            namespace_gids: cli.ownership.gid_map,
            translate_uid: cli.ownership.translate_uid,
            translate_gid: cli.ownership.translate_gid,
            squash: cli.ownership.squash_to.map(|to| Squash { host: to.0, guest: cli.ownership.squash_as }),
        },
        window: cli.window.dax_window.map(|len_bytes| WindowOptions {
            len_bytes,
            policy: cli.window.dax_policy,
            guards: !cli.window.no_dax_guard,
            front_end: cli.window.front_end.into(),
        }),
        front_end: cli.window.front_end.into(),
        locks: LockOptions { posix: cli.locks.posix_lock, flock: cli.locks.flock },
        inodes: InodeOptions {
            file_handles: cli.workers.inode_file_handles,
            max_fds: cli.workers.max_fds,
            limit: cli.workers.inode_limit,
            rlimit_nofile: cli.workers.rlimit_nofile,
        },
        workers: WorkerOptions {
            request_queues: cli.workers.num_request_queues.unwrap_or(match cli.window.dax_window {
                None => REQUEST_QUEUES,
                Some(_) => REQUEST_QUEUES_WITH_WINDOW,
            }),
            thread_pool_size: cli.workers.thread_pool_size,
            poll_us: cli.workers.poll_us,
            rate: cli.workers.rate,
        },
        host_changes: match (cli.changes.host_changes, is_in_group) {
            (HostChanges::Auto, false) => HostChanges::Never,
            (given, _) => given,
        },
        isolation: IsolationOptions {
            sandbox: cli.isolation.sandbox,
            seccomp: cli.isolation.seccomp,
            capability_changes: cli.isolation.modcaps.unwrap_or_default().0,
        },
        migration: MigrationOptions {
            mode: cli.migration.migration_mode,
            on_error: cli.migration.migration_on_error,
            verify_handles: cli.migration.migration_verify_handles,
            confirm_paths: cli.migration.migration_confirm_paths,
            locks: cli.migration.migration_locks,
        },
        log: LogOptions {
            level: if cli.legacy.debug { LogLevel::Debug } else { cli.log.log_level },
            syslog: cli.log.syslog,
        },
        metrics_socket: cli.log.metrics_socket,
        remarks: cli.remarks,
        socket: SocketOptions {
            endpoint: match cli.socket.check {
                true => Endpoint::Nowhere,
                false => endpoint(cli.socket.fd, cli.socket.socket_path.or(cli.socket.socket), cli.socket.socket_group),
            },
            keep_serving: cli.socket.keep_serving,
            upgradable: cli.socket.upgradable || cli.socket.resilient,
            resilient: cli.socket.resilient,
            supervised: cli.supervised,
        },
    }
}

fn endpoint(fd: Option<i32>, path: Option<PathBuf>, group: Option<String>) -> Endpoint {
    match (fd, path) {
        (Some(fd), _) => Endpoint::Inherited(fd),
        (None, path) => {
            Endpoint::Path { path: path.expect("the parser demands --socket-path, --socket or --fd"), group }
        }
    }
}
