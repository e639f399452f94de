//! What a front end makes of requests to map and to unmap.

/// How strict a front end is, and what it does besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Mappings that may live at once; one more is refused.
    pub mappings_max: usize,
    /// A mapping may end beyond the end of its file.
    pub maps_beyond_end: bool,
    /// A descriptor that is open for reading only can be mapped.
    pub takes_read_only_files: bool,
    /// Without the flag for writing, the guest cannot write.
    pub maps_read_only: bool,
    /// A mapping may replace others.
    pub replaces: bool,
    /// A refusal closes the channel instead of answering an error.
    pub closes_at_refusal: bool,
    /// A reset of the device ends all mappings.
    pub unmaps_at_reset: bool,
    /// Requests of the back end wait while the front end waits for an answer of the back end.
    pub is_single_threaded: bool,
    /// The guest sees a mapping no sooner than the front end reads its next request.
    pub shows_late: bool,
    /// It knows requests about shared objects.
    pub has_shared_objects: bool,
}

impl Rules {
    /// QEMU 11.1 with its generic device.
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

    /// crosvm, which maps into one reservation on a thread of the device's own.
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

/// What happens to one request to map or to unmap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaction {
    /// It is answered, as the rules say.
    Serve,
    /// An error is the answer, and nothing is done.
    Refuse,
    /// Nothing is done and nothing answered.
    Ignore,
    /// It is done and not answered.
    ServeUnanswered,
    /// The channel is closed, nothing is done.
    Close,
    /// It is done, then the channel is closed.
    ServeAndClose,
}
