//! PostgreSQL: pgbench, an immediate stop under load, recovery, and checks of every index and checksum.

use std::path::Path;

use super::{Test, root};

/// The steps, by a user who is not root; the first that fails ends the script. With `-n`, pgbench keeps the history
/// that the sums are compared with.
const SCRIPT: &str = r#"set -eu
mkdir /share/pg
chown 65534:65534 /share/pg
chmod 700 /share/pg
exec setpriv --reuid 65534 --regid 65534 --clear-groups sh -euc '
export PGDATA=/share/pg PGHOST=/tmp PGUSER=bench PGDATABASE=postgres
start() { pg_ctl -s -w -t 600 -l /tmp/log -o "-c listen_addresses= -k /tmp" start || { cat /tmp/log; exit 1; }; }
sums() {
  psql -XAtc "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(tbalance) FROM pgbench_tellers)
                 AND (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(bbalance) FROM pgbench_branches)
                 AND (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history)"
}
check() {
  test "$(sums)" = t || { echo "the sums of the tables differ"; exit 1; }
  pg_amcheck --heapallindexed
  pg_dump >/dev/null
}
initdb -U bench --no-locale -E UTF8 --data-checksums >/dev/null
start
pgbench -q -i -s 1
psql -Xqc "CREATE EXTENSION amcheck"
pgbench -n -c 4 -t 100
check
for round in 1 2; do
  pgbench -n -c 4 -t 100000 >/dev/null 2>&1 &
  until test "$(psql -XAtc "SELECT count(*) > 400 + 100 * $round FROM pgbench_history")" = t; do :; done
  pg_ctl -s -w -t 600 -m immediate stop
  wait || true
  start
  check
done
pg_ctl -s -w -t 600 stop
pg_checksums --check
'"#;

pub(super) fn run(root: &root::Root, share: &Path) -> anyhow::Result<Vec<Test>> {
    Ok(vec![Test::of("postgres", &root.run(share, &["sh", "-c", SCRIPT])?)])
}
