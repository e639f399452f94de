//! Every metric: its name, kind, unit and meaning.
//!
//! The OpenMetrics text, `docs/metrics.md` and the tests all follow this list.

/// How a metric behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only rises while the daemon runs.
    Counter,
    /// The current value.
    Gauge,
    /// A distribution; only rises.
    Histogram,
    /// A constant 1 whose labels carry the information.
    Info,
}

/// A metric, or several that differ by one label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Family {
    /// The name. Ends with the unit if there is one; has no OpenMetrics suffix such as `_total`.
    pub name: &'static str,
    /// How it behaves.
    pub kind: Kind,
    /// The unit, or empty for plain numbers.
    pub unit: &'static str,
    /// The label that distinguishes its metrics, or empty if there is only one.
    pub label: &'static str,
    /// One sentence that says what it measures.
    pub help: &'static str,
}

macro_rules! families {
    ($(
        $constant:ident: $kind:ident $name:literal, unit $unit:literal, label $label:literal, $help:literal;
    )*) => {
        $(
            #[doc = $help]
            pub const $constant: Family =
                Family { name: $name, kind: Kind::$kind, unit: $unit, label: $label, help: $help };
        )*
        /// All families, in the order of the OpenMetrics text.
        pub const ALL: &[Family] = &[$($constant),*];
    };
}

families! {
    BUILD: Info "transom_build", unit "", label "version", "Version of the daemon.";
    UPTIME: Gauge "transom_uptime_seconds", unit "seconds", label "", "Time since the daemon started.";
    OPERATION_DURATION: Histogram "transom_operation_duration_seconds", unit "seconds", label "operation",
        "Time from taking a request off its queue to sending the reply, by FUSE operation.";
    OPERATION_ERRORS: Counter "transom_operation_errors", unit "", label "operation",
        "Requests that failed, by FUSE operation.";
    ERRORS: Counter "transom_errors", unit "", label "errno", "Requests that failed, by errno.";
    READ_BYTES: Counter "transom_read_bytes", unit "bytes", label "", "File data returned to the guest by READ.";
    WRITTEN_BYTES: Counter "transom_written_bytes", unit "bytes", label "",
        "File data accepted from the guest by WRITE.";
    COPIED_BYTES: Counter "transom_copied_bytes", unit "bytes", label "",
        "File data copied on the host by COPY_FILE_RANGE.";
    DEFERRED: Counter "transom_deferred_requests", unit "requests", label "",
        "Requests passed to the thread pool because they would have blocked the worker of their queue.";
    INTERRUPTS: Counter "transom_interrupts", unit "", label "", "INTERRUPT requests received.";
    BROKEN_QUEUES: Counter "transom_broken_queues", unit "queues", label "",
        "Queues stopped because the guest violated the virtqueue protocol.";
    UNDECIDED_REQUESTS: Counter "transom_undecided_requests", unit "requests", label "",
        "Requests that failed with EIO after a death, with --resilient: nobody knows whether they were done.";
    SESSIONS: Counter "transom_sessions", unit "sessions", label "", "INIT requests accepted.";
    HOST_CHANGES: Counter "transom_host_changes", unit "changes", label "",
        "Changes in the share by other processes of the host, with --host-changes.";
    OWN_CHANGES: Counter "transom_own_changes", unit "changes", label "",
        "Changes in the share by the daemon itself, on behalf of the guest, with --host-changes.";
    HOST_CHANGE_OVERFLOWS: Counter "transom_host_change_overflows", unit "", label "",
        "Times that changes were lost because more happened on the host than the kernel's queue had room for.";
    INODES: Gauge "transom_inodes", unit "", label "", "Inodes that the guest references.";
    INODES_LIMIT: Gauge "transom_inodes_limit", unit "", label "",
        "Maximum number of inodes that the guest may reference.";
    INODES_REFUSED: Counter "transom_inodes_refused", unit "", label "",
        "Requests that failed because the guest referenced the maximum number of inodes.";
    OPEN_FILES: Gauge "transom_open_files", unit "files", label "", "Files and directories that the guest has open.";
    DESCRIPTORS: Gauge "transom_descriptors", unit "descriptors", label "", "File descriptors held for the guest.";
    DESCRIPTORS_LIMIT: Gauge "transom_descriptors_limit", unit "", label "",
        "Maximum number of file descriptors held for the guest.";
    LOCK_OWNERS: Gauge "transom_lock_owners", unit "owners", label "",
        "Owners of POSIX locks, counted once for each inode that they lock.";
    LOCK_WAITERS: Gauge "transom_lock_waiters", unit "waiters", label "", "Requests waiting for a lock.";
    POOL_THREADS: Gauge "transom_pool_threads", unit "threads", label "", "Threads in the thread pool.";
    POOL_BUSY: Gauge "transom_pool_busy_threads", unit "threads", label "", "Pool threads that are serving a request.";
    POOL_QUEUED: Gauge "transom_pool_queued_requests", unit "requests", label "", "Requests waiting for a pool thread.";
    QUOTA_BYTES: Gauge "transom_quota_bytes", unit "bytes", label "",
        "What the guest has added to the share, with --quota.";
    QUOTA_BYTES_LIMIT: Gauge "transom_quota_limit_bytes", unit "bytes", label "",
        "What the guest may add to the share.";
    QUOTA_FILES: Gauge "transom_quota_files", unit "files", label "",
        "Inodes that the guest has added to the share, with --quota.";
    QUOTA_REFUSED: Counter "transom_quota_refused", unit "", label "",
        "Requests that failed because the guest may not add more to the share.";
    GROUP_MEMBERS: Gauge "transom_group_members", unit "members", label "", "Daemons in the coherence group.";
    GROUP_STAMPS: Counter "transom_group_stamps", unit "", label "",
        "Clock of the coherence group's version table: changes that its daemons have stamped.";
    GROUP_EPOCHS: Counter "transom_group_epochs", unit "", label "",
        "Epoch of the version table: how often everything that guests of the group had cached was declared invalid.";
    GROUP_HOST_WATCHED: Gauge "transom_group_host_watched", unit "", label "",
        "1 if a daemon of the group stamps the changes that other processes of the host make.";
    GROUP_HOST_CHANGES: Counter "transom_group_host_changes", unit "changes", label "",
        "Changes by other processes of the host that this daemon has stamped.";
    GROUP_HOST_CHANGES_TIMED: Counter "transom_group_timed_host_changes", unit "changes", label "",
        "Those of them whose delay was measured, at most one every 10 ms.";
    GROUP_HOST_DELAY: Counter "transom_group_host_change_delay_seconds", unit "seconds", label "",
        "Time from the inode's change time to the stamp, summed over the measured ones, each up to a tick too much.";
    WINDOW_BYTES: Gauge "transom_window_bytes", unit "bytes", label "", "Size of the DAX window.";
    WINDOW_RANGES: Gauge "transom_window_ranges", unit "ranges", label "",
        "Ranges of 2 MiB that are mapped in the DAX window.";
    WINDOW_MAPS: Counter "transom_window_maps", unit "", label "", "Ranges mapped in the DAX window.";
    WINDOW_UNMAPS: Counter "transom_window_unmaps", unit "", label "", "Ranges unmapped from the DAX window.";
    WINDOW_REFUSED: Counter "transom_window_refused", unit "", label "", "Mapping requests that failed.";
    WINDOW_MAP_DURATION: Counter "transom_window_map_duration_seconds", unit "seconds", label "",
        "Time spent mapping ranges until the guest could access them.";
    AGENTS: Gauge "transom_agents", unit "", label "",
        "Agents of the guest that replay changes of the host, 0 or 1, with --events.";
    AGENT_KEEPS_UP: Gauge "transom_agent_keeps_up", unit "", label "",
        "1 if the agent has acknowledged what happened until a moment ago, and names stay valid for longer.";
    CHANGES_REPLAYED: Counter "transom_replayed_changes", unit "changes", label "",
        "Changes of the host that the agent has replayed in the guest.";
    CHANGES_SKIPPED: Counter "transom_skipped_changes", unit "changes", label "",
        "Changes of the host that the agent has not replayed, because the guest lacks the directory or uses the name.";
    CHANGES_LOST: Counter "transom_replay_overflows", unit "", label "",
        "Times that the guest was told to forget its names because too many changes waited for its agent.";
    CHANGES_WAITING: Gauge "transom_waiting_changes", unit "changes", label "", "Changes that wait for the agent.";
    REPLAY_DELAY: Counter "transom_replay_delay_seconds", unit "seconds", label "",
        "Time from reading each change to its acknowledgement by the agent, replayed or skipped, summed.";
    QUEUE_DEPTH: Gauge "transom_queue_depth_requests", unit "requests", label "queue",
        "Requests taken off a queue and not yet answered, by queue.";
}

macro_rules! counters {
    ($($variant:ident = $family:ident,)*) => {
        /// A counter that the daemon increments itself, as opposed to one whose owner is asked for its value.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Counter {
            $(#[doc = concat!("See [`", stringify!($family), "`].")] $variant,)*
        }

        impl Counter {
            /// All counters, in the order of their discriminants.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Returns the family that describes the counter.
            pub const fn family(self) -> Family {
                match self { $(Self::$variant => $family,)* }
            }
        }
    };
}

counters! {
    ReadBytes = READ_BYTES,
    WrittenBytes = WRITTEN_BYTES,
    CopiedBytes = COPIED_BYTES,
    Deferred = DEFERRED,
    Interrupts = INTERRUPTS,
    BrokenQueues = BROKEN_QUEUES,
    UndecidedRequests = UNDECIDED_REQUESTS,
    Sessions = SESSIONS,
    HostChanges = HOST_CHANGES,
    OwnChanges = OWN_CHANGES,
    HostChangeOverflows = HOST_CHANGE_OVERFLOWS,
}

#[cfg(test)]
#[path = "families_test.rs"]
mod families_test;
