//! What a run is a part of: the batch system's job.

use serde::{Deserialize, Serialize};

/// As the batch system names it, so that its accounting and our figures can be laid beside each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// "Slurm", "Flux", "PBS" or "LSF".
    pub scheduler: String,
    pub id: String,
}

/// A Flux instance may run in a Slurm job: the inner one has started us. A Flux batch job is an instance of its own, whose name
/// its script and all that it runs know; what it runs has names within it besides.
const SCHEDULERS: [(&str, &str); 5] = [
    ("Flux", "FLUX_ENCLOSING_ID"),
    ("Flux", "FLUX_JOB_ID"),
    ("Slurm", "SLURM_JOB_ID"),
    ("PBS", "PBS_JOBID"),
    ("LSF", "LSB_JOBID"),
];

impl Job {
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Option<Job> {
        SCHEDULERS.iter().find_map(|(scheduler, name)| {
            let id = variable(name).filter(|id| !id.is_empty())?;
            Some(Job { scheduler: (*scheduler).to_owned(), id })
        })
    }
}

impl std::fmt::Display for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.scheduler, self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_has_the_name_that_its_scheduler_gave_it() {
        let variables = |names: &'static [(&str, &str)]| {
            move |name: &str| names.iter().find(|(known, _)| *known == name).map(|(_, id)| (*id).to_owned())
        };
        let shown = |names| Job::of(variables(names)).map(|job| job.to_string());
        assert_eq!(shown(&[("SLURM_JOB_ID", "17")]).as_deref(), Some("Slurm 17"));
        assert_eq!(shown(&[("SLURM_JOB_ID", "17"), ("FLUX_JOB_ID", "f2A")]).as_deref(), Some("Flux f2A"));
        assert_eq!(
            shown(&[("FLUX_JOB_ID", "f2A"), ("FLUX_ENCLOSING_ID", "fD2e73NP")]).as_deref(),
            Some("Flux fD2e73NP")
        );
        assert_eq!(shown(&[("SLURM_JOB_ID", "")]), None);
    }
}
