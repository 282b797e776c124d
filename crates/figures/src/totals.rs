//! Sums over devices.

use serde::{Deserialize, Serialize};

/// Sums over the devices that are not contained in another, so that no joule is counted twice.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Totals {
    /// The energy of the devices.
    pub joules: f64,
    /// Their present power; `None` if nothing runs.
    pub watts: Option<f64>,
    /// Energy that was charged to no frame.
    pub idle_joules: f64,
    /// The part of the idle energy that other jobs used.
    #[serde(default)]
    pub other_jobs_joules: f64,
    /// Energy of intervals that cannot be attributed.
    pub lost_joules: f64,
    /// Energy charged to MPI functions.
    pub mpi_joules: f64,
    /// Energy of devices with GPU streams.
    pub gpu_joules: f64,
    /// The part of `gpu_joules` that was used while a kernel ran.
    pub kernel_joules: f64,
}

impl Totals {
    /// Returns the sums of energy.
    pub fn energies(&self) -> [f64; 7] {
        [
            self.joules,
            self.idle_joules,
            self.other_jobs_joules,
            self.lost_joules,
            self.mpi_joules,
            self.gpu_joules,
            self.kernel_joules,
        ]
    }

    fn energies_mut(&mut self) -> [&mut f64; 7] {
        [
            &mut self.joules,
            &mut self.idle_joules,
            &mut self.other_jobs_joules,
            &mut self.lost_joules,
            &mut self.mpi_joules,
            &mut self.gpu_joules,
            &mut self.kernel_joules,
        ]
    }

    /// Adds the energy and the power of another node.
    pub fn add(&mut self, other: &Totals) {
        self.energies_mut().into_iter().zip(other.energies()).for_each(|(sum, joules)| *sum += joules);
        self.watts = self.watts.into_iter().chain(other.watts).reduce(|sum, watts| sum + watts);
    }

    /// Raises each sum of energy to that of a later report of the same devices.
    pub fn raise(&mut self, later: &Totals) {
        self.energies_mut()
            .into_iter()
            .zip(later.energies())
            .for_each(|(sum, joules)| *sum = sum.max(joules));
    }
}
