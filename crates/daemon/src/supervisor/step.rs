//! What each step of an upgrade has: a limit, and a reason if it fails.

use std::time::Duration;

/// How long a daemon may take for one step during which the guest does not wait, or which it has to take.
pub(super) const STEP_MAX: Duration = Duration::from_secs(10);

/// Why there was no upgrade, for a person.
pub(super) type Refusal = String;
