//! The batch system's job that a run is a part of.

use serde::{Deserialize, Serialize};

/// The job as the batch system names it, so that its accounting can be compared with ampere's figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// "Slurm", "Flux", "PBS" or "LSF".
    pub scheduler: String,
    /// The scheduler's name for the job.
    pub id: String,
}

/// Schedulers and their variables, the innermost first: a Flux instance may run in a Slurm job. A Flux batch job is an instance
/// of its own. `FLUX_ENCLOSING_ID` has the name of the batch job, in its script and in everything that it runs; `FLUX_JOB_ID` has
/// the name of a job within an instance.
const SCHEDULERS: [(&str, &str); 5] = [
    ("Flux", "FLUX_ENCLOSING_ID"),
    ("Flux", "FLUX_JOB_ID"),
    ("Slurm", "SLURM_JOB_ID"),
    ("PBS", "PBS_JOBID"),
    ("LSF", "LSB_JOBID"),
];

impl Job {
    /// Returns the job that the environment names. `variable` looks up a variable.
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Option<Job> {
        SCHEDULERS.iter().find_map(|(scheduler, name)| {
            let variable = |name| variable(name).filter(|id: &String| !id.is_empty());
            let mut id = variable(name)?;
            // Slurm's accounting names a task of a job array `JOB_TASK`.
            let of_array = variable("SLURM_ARRAY_JOB_ID").zip(variable("SLURM_ARRAY_TASK_ID"));
            if let Some((job, task)) = of_array.filter(|_| *scheduler == "Slurm") {
                id = format!("{job}_{task}");
            }
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
        let of_array = [("SLURM_JOB_ID", "13"), ("SLURM_ARRAY_JOB_ID", "9"), ("SLURM_ARRAY_TASK_ID", "1")];
        assert_eq!(Job::of(variables(of_array.to_vec().leak())).map(|job| job.id).as_deref(), Some("9_1"));
    }
}
