//! A process as the guest of any vhost-user-fs daemon.
