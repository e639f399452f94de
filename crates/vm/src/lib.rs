//! Transom: vm.
