//! What can go wrong, for a person to read.

use std::{fmt, io};

use rustix::io::Errno;
use thiserror::Error;

/// Why there is no process that makes views.
#[derive(Debug, Error)]
pub enum StartError {
    /// No process was started.
    #[error("cannot start the process: {0}")]
    Process(#[source] io::Error),
    /// Something that it needs is missing.
    #[error("{step}: {source}{}", step.advice())]
    Step {
        /// What was tried.
        step: Step,
        /// How it failed.
        source: io::Error,
    },
    /// It ended without a word.
    #[error("the process ended before it was ready")]
    Died,
}

/// Why there is no view or guard of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ShimError {
    /// Of this file there can be no view.
    #[error("no view of this file: {0}")]
    Refused(Errno),
    /// This file cannot be guarded.
    #[error("nothing keeps others from making this file shorter: {0}")]
    Unguarded(Errno),
    /// The process has ended.
    #[error("the process that makes views has ended")]
    Gone,
}

/// A step of the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Step {
    /// Descriptors, signals.
    Process = 1,
    /// /dev/fuse.
    Device = 2,
    /// A file system of its own.
    Mount = 3,
    /// What the kernel's FUSE offers.
    Negotiation = 4,
    /// Root directory, capabilities, system calls.
    Isolation = 5,
    /// A first view.
    Probe = 6,
}

impl Step {
    const ALL: [Self; 6] = [Self::Process, Self::Device, Self::Mount, Self::Negotiation, Self::Isolation, Self::Probe];

    pub(crate) fn from_u32(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|&step| step as u32 == number)
    }

    fn advice(self) -> &'static str {
        match self {
            Self::Device => "; the module fuse has to be loaded, and root's own /dev/fuse visible",
            Self::Mount => "; this takes CAP_SYS_ADMIN",
            Self::Negotiation => "; Linux 6.9 or newer, with CONFIG_FUSE_PASSTHROUGH",
            Self::Probe => "; this takes CAP_SYS_ADMIN outside of any user namespace",
            Self::Process | Self::Isolation => "",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Process => "cannot prepare the process",
            Self::Device => "cannot open /dev/fuse",
            Self::Mount => "cannot make a FUSE file system",
            Self::Negotiation => "the kernel's FUSE passes no file through",
            Self::Isolation => "cannot isolate the process",
            Self::Probe => "cannot pass a file through",
        })
    }
}
