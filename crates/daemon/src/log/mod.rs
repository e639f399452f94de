//! The log: standard error, or the system log.
//!
//! `--log-level` (or `-d`, or `loglevel=` in a list) sets the level. The environment variable `RUST_LOG` takes
//! precedence, except with `--syslog`. The connection to the system log is opened here, before the sandbox hides its
//! socket. The rate of messages that a guest can provoke is bounded (`bounded`).

mod bounded;
mod syslog;

use crate::options::LogOptions;
use bounded::Bounded;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::SubscriberBuilder;

/// Opens the log for the whole process. Falls back to standard error, with a warning, if the system log cannot be
/// reached.
pub fn open(options: LogOptions) {
    let level = LevelFilter::from(options.level);
    if !options.syslog {
        return to_stderr(level);
    }
    match syslog::Syslog::connect() {
        Ok(syslog) => SubscriberBuilder::default()
            .with_max_level(level)
            .with_ansi(false)
            .without_time()
            .with_level(false)
            .with_target(false)
            .with_writer(Bounded::new(syslog))
            .init(),
        Err(error) => {
            to_stderr(level);
            tracing::warn!(%error, "cannot reach the system log; messages go to standard error");
        }
    }
}

fn to_stderr(level: LevelFilter) {
    let default = || EnvFilter::default().add_directive(level.into());
    let filter = match std::env::var("RUST_LOG") {
        Ok(directives) => {
            EnvFilter::builder().with_default_directive(LevelFilter::ERROR.into()).parse_lossy(directives)
        }
        Err(_) => default(),
    };
    let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    SubscriberBuilder::default()
        .with_env_filter(filter)
        .with_ansi(is_terminal)
        .with_target(false)
        .with_writer(Bounded::new(std::io::stderr))
        .init();
}
