//! The id maps of a user namespace.
//!
//! Only a process outside a user namespace can write its id maps, so a helper process, forked before, does it for this
//! one: directly as root and for the user's own id, otherwise through newuidmap(1) and newgidmap(1), which grant what
//! `/etc/subuid` and `/etc/subgid` allow.

use super::{SandboxError, fork, step};
use crate::options::NamespaceRange;
use nix::sched::CloneFlags;
use rustix::process::{Pid, getegid, geteuid, getpid, waitpid};
use rustix::thread::{Gid, Uid, set_thread_res_gid, set_thread_res_uid};
use std::fs;
use std::io::{self, Read};
use std::process::Command;
use tracing::error;

/// Moves this process into a user namespace with these ids. An empty list maps only the process's own id.
pub(super) fn enter_user_namespace(
    uids: &[NamespaceRange],
    gids: &[NamespaceRange],
    advice: &'static str,
) -> Result<(), SandboxError> {
    let own = |id| vec![NamespaceRange { inside: id, outside: id, count: 1 }];
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    let uids = if uids.is_empty() { own(uid) } else { uids.to_vec() };
    let gids = if gids.is_empty() { own(gid) } else { gids.to_vec() };

    let target = getpid();
    let (mut wait, go) = io::pipe().map_err(step("cannot create a pipe", ""))?;
    let helper = fork::fork().map_err(step("cannot start a process", ""))?;
    let Some(helper) = helper else {
        drop(go);
        // End of file says that the namespace exists; no byte is ever sent.
        let _ = wait.read(&mut [0]);
        let given = give("uid", target, uid, &uids).and_then(|()| give("gid", target, gid, &gids));
        if let Err(error) = &given {
            error!("cannot set the ids of the user namespace: {error}");
        }
        std::process::exit(i32::from(given.is_err()));
    };
    drop(wait);
    let entered = nix::sched::unshare(CloneFlags::CLONE_NEWUSER);
    drop(go);
    let status =
        waitpid(Some(helper), rustix::process::WaitOptions::empty()).map_err(step("cannot wait for a process", ""))?;
    entered.map_err(step("cannot create a user namespace", advice))?;
    match status {
        Some((_, status)) if status.exit_status() == Some(0) => Ok(()),
        _ => Err(SandboxError::IdMaps),
    }
}

/// Switches to uid and gid 0 of the user namespace, if it has them, which own all its files.
pub(super) fn become_root_of_namespace() -> Result<(), SandboxError> {
    let has_zero = |file: &str| {
        let lines = fs::read_to_string(file).unwrap_or_default();
        lines.lines().any(|line| line.split_whitespace().next() == Some("0"))
    };
    if has_zero("/proc/self/gid_map") && !getegid().is_root() {
        let gid = Gid::ROOT;
        set_thread_res_gid(gid, gid, gid).map_err(step("cannot become group 0 of the namespace", ""))?;
    }
    if has_zero("/proc/self/uid_map") && !geteuid().is_root() {
        let uid = Uid::ROOT;
        set_thread_res_uid(uid, uid, uid).map_err(step("cannot become user 0 of the namespace", ""))?;
    }
    Ok(())
}

/// Writes one map of process `target`. `kind` is "uid" or "gid"; `own` is the id of this process.
fn give(kind: &str, target: Pid, own: u32, ranges: &[NamespaceRange]) -> io::Result<()> {
    let folder = format!("/proc/{}", target.as_raw_nonzero());
    let is_own = matches!(ranges, [range] if range.outside == own && range.count == 1);
    let is_root = geteuid().is_root();
    if !is_root && !is_own {
        return ask_helper(&format!("new{kind}map"), target, ranges);
    }
    if kind == "gid" && !is_root {
        // The kernel requires this before an ordinary user maps a group.
        fs::write(format!("{folder}/setgroups"), "deny")?;
    }
    let lines: String = ranges.iter().map(|r| format!("{} {} {}\n", r.inside, r.outside, r.count)).collect();
    fs::write(format!("{folder}/{kind}_map"), lines)
        .map_err(|error| io::Error::new(error.kind(), format!("{kind}s {}: {error}", written(ranges))))
}

fn ask_helper(program: &str, target: Pid, ranges: &[NamespaceRange]) -> io::Result<()> {
    let numbers = ranges.iter().flat_map(|range| [range.inside, range.outside, range.count]);
    let output = Command::new(program)
        .arg(target.as_raw_nonzero().to_string())
        .args(numbers.map(|number| number.to_string()))
        .output()
        .map_err(|error| io::Error::new(error.kind(), format!("cannot run {program} (package uidmap): {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{program} refused {}: {}", written(ranges), said.trim())))
}

fn written(ranges: &[NamespaceRange]) -> String {
    ranges.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}
