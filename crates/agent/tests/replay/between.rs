//! Two guests of one directory, each with a daemon and an agent of its own: one changes what the other watches.

use std::{fs, path::Path, sync::mpsc, thread};

use anyhow::Context as _;

use crate::{
    Guest, Machine,
    guest::{CONTROL, SHARE, count_cookies, signal, watch},
    rows::{END, ROWS},
    trees::wait,
    watcher::PATIENCE,
};

/// A file that the host makes when everything else has happened.
const BARRIER: &str = "barrier";

pub(crate) fn guests(machine: &Machine, daemon: &Path) -> anyhow::Result<String> {
    let folder = tempfile::tempdir()?;
    let guest = |name: &str, role| {
        let folder = folder.path().join(name);
        fs::create_dir(&folder)?;
        Guest::new(&folder, machine, daemon, role)
    };
    let (observer, mut actor) = (guest("observer", "compare")?, guest("actor", "act")?);
    actor.spec.shares[0].host.clone_from(&observer.share);
    let (share, actors_control) = (observer.share.clone(), actor.control.clone());
    for row in ROWS {
        fs::create_dir(share.join(row.name))?;
        (row.prepare)(&share.join(row.name))?;
    }

    let (is_ready, actor_is_ready) = mpsc::channel();
    let (has_ended, observer_has_ended) = mpsc::channel();
    let (observed, acted) = thread::scope(|scope| {
        let share = &share;
        let acting = scope.spawn(move || {
            actor.run(|| {
                is_ready.send(())?;
                observer_has_ended.recv()?;
                Ok(fs::write(share.join(last()).join(BARRIER), "")?)
            })
        });
        let observed = observer.run(|| {
            actor_is_ready.recv().context("the acting guest has ended")?;
            Ok(fs::write(actors_control.join("go"), "")?)
        });
        let _ = has_ended.send(());
        (observed, acting.join().expect("the thread does not panic"))
    });
    for (who, outcome) in [("the guest that acts", acted), ("the guest that watches", observed)] {
        let (outcome, ()) = outcome.context(who)?;
        anyhow::ensure!(outcome.exit_code == 0, "{who}: {}", String::from_utf8_lossy(&outcome.stdout));
    }
    Ok(format!("({} rows) ", ROWS.len()))
}

/// Makes the changes of all rows in the share, and compares the events with those of a local file system: nothing of
/// them comes back from the other guest, or from the host.
pub(crate) fn act() -> anyhow::Result<()> {
    let local = Path::new("/tmp/local");
    for row in ROWS {
        fs::create_dir_all(local.join(row.name))?;
        (row.prepare)(&local.join(row.name))?;
    }
    let mut local_events = watch(local)?;
    act_below(local)?;
    let expected = local_events.until(|row, name| row == last() && name == END)?;

    let share = Path::new(SHARE);
    let mut events = watch(share)?;
    signal("ready")?;
    wait(2 * PATIENCE, || Ok(Path::new(CONTROL).join("go").exists())).context("the other guest is not ready")?;
    act_below(share)?;
    let mut found = events.until(|row, name| row == last() && name == END)?;
    for (row, mut later) in events.until(|_, name| name == BARRIER)? {
        later.retain(|event| !event.ends_with(&format!(" {BARRIER}")));
        found.entry(row).or_default().append(&mut later);
    }
    for row in ROWS {
        let (expected, found) = (count_cookies(&expected[row.name]), count_cookies(&found[row.name]));
        anyhow::ensure!(expected == found, "{}: expected {expected:#?}, found {found:#?}", row.name);
    }
    Ok(())
}

fn act_below(root: &Path) -> anyhow::Result<()> {
    for row in ROWS {
        (row.act)(&root.join(row.name))?;
        fs::write(root.join(row.name).join(END), "")?;
    }
    Ok(())
}

/// Returns the directory of the last row.
fn last() -> &'static str {
    ROWS.last().map_or("", |row| row.name)
}
