//! How a front end handles requests to map and to unmap.

/// How strict a front end is, and how it behaves otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// The most mappings that may exist at once; further ones are refused.
    pub mappings_max: usize,
    /// A mapping may extend past the end of its file.
    pub maps_beyond_end: bool,
    /// A file that is open read-only can be mapped.
    pub takes_read_only_files: bool,
    /// The guest cannot write to a mapping without the flag for writing.
    pub maps_read_only: bool,
    /// A mapping may replace others.
    pub replaces: bool,
    /// A refusal closes the channel instead of being answered with an error.
    pub closes_at_refusal: bool,
    /// A reset of the device ends all mappings.
    pub unmaps_at_reset: bool,
    /// Requests of the back end wait while the front end waits for a reply of the back end.
    pub is_single_threaded: bool,
    /// The guest sees a mapping only once the front end reads its next request.
    pub shows_late: bool,
    /// Requests about shared objects are supported.
    pub has_shared_objects: bool,
}

impl Rules {
    /// QEMU 11.1 with its generic vhost-user device.
    pub const QEMU: Self = Self {
        mappings_max: 511,
        maps_beyond_end: false,
        takes_read_only_files: false,
        maps_read_only: false,
        replaces: false,
        closes_at_refusal: true,
        unmaps_at_reset: true,
        is_single_threaded: true,
        shows_late: true,
        has_shared_objects: true,
    };

    /// crosvm, which maps into one reservation on the device's own thread.
    pub const CROSVM: Self = Self {
        mappings_max: 1 << 15,
        maps_beyond_end: true,
        takes_read_only_files: true,
        maps_read_only: true,
        replaces: true,
        closes_at_refusal: false,
        unmaps_at_reset: false,
        is_single_threaded: false,
        shows_late: false,
        has_shared_objects: false,
    };
}

/// How one request to map or to unmap is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaction {
    /// Handle it by the rules.
    Serve,
    /// Answer with an error and do nothing.
    Refuse,
    /// Do nothing and do not answer.
    Ignore,
    /// Carry it out and do not answer.
    ServeUnanswered,
    /// Do nothing and close the channel.
    Close,
    /// Carry it out, then close the channel.
    ServeAndClose,
}
