//! The errors of the shim, and the steps of its start.

use std::{fmt, io};

use rustix::io::Errno;
use thiserror::Error;

/// An error from starting the process that makes views.
#[derive(Debug, Error)]
pub enum StartError {
    /// The process cannot be started.
    #[error("cannot start the shim process: {0}")]
    Process(#[source] io::Error),
    /// A step of the start failed.
    #[error("{step}: {source}{}", step.advice())]
    Step {
        /// The step.
        step: Step,
        /// The cause.
        source: io::Error,
    },
    /// The process ended without an error message.
    #[error("the shim process ended before it was ready")]
    Died,
}

/// An error from making a view or a guard of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ShimError {
    /// This file cannot be viewed.
    #[error("cannot make a view of this file: {0}")]
    Refused(Errno),
    /// This file cannot be guarded.
    #[error("cannot keep others from truncating this file: {0}")]
    Unguarded(Errno),
    /// The process has ended.
    #[error("the shim process has ended")]
    Gone,
}

/// A step of the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Step {
    /// Descriptors and signals.
    Process = 1,
    /// Opening /dev/fuse.
    Device = 2,
    /// Mounting a file system.
    Mount = 3,
    /// Negotiating the features of FUSE.
    Negotiation = 4,
    /// Restricting root directory, capabilities and system calls.
    Isolation = 5,
    /// Making a first view.
    Probe = 6,
}

impl Step {
    const ALL: [Self; 6] = [Self::Process, Self::Device, Self::Mount, Self::Negotiation, Self::Isolation, Self::Probe];

    pub(crate) fn from_u32(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|&step| step as u32 == number)
    }

    fn advice(self) -> &'static str {
        match self {
            Self::Device => "; load the module fuse, and make /dev/fuse accessible",
            Self::Mount => "; this needs CAP_SYS_ADMIN",
            Self::Negotiation => "; this needs Linux 6.9 or newer with CONFIG_FUSE_PASSTHROUGH",
            Self::Probe => "; this needs CAP_SYS_ADMIN in the initial user namespace",
            Self::Process | Self::Isolation => "",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Process => "cannot prepare the process",
            Self::Device => "cannot open /dev/fuse",
            Self::Mount => "cannot create a FUSE file system",
            Self::Negotiation => "the kernel's FUSE does not support passthrough",
            Self::Isolation => "cannot isolate the process",
            Self::Probe => "cannot register a file for passthrough",
        })
    }
}
