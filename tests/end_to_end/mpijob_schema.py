"""What an MPIJob of the Kubeflow MPI operator (kubeflow.org/v2beta1) may hold, as far as job files here use it: closed, so
that a misspelt field is a mistake, which the operator itself would drop in silence."""


def closed(required=(), **fields):
    return {"fields": fields, "required": required}


TEXT, WHOLE, TRUTH = str, int, bool
TEXTS = [TEXT]
QUANTITIES = closed(cpu=TEXT, memory=TEXT, **{"hugepages-2Mi": TEXT})

CONTAINER = closed(
    ("name", "image"), name=TEXT, image=TEXT, imagePullPolicy={"Always", "IfNotPresent", "Never"}, command=TEXTS, args=TEXTS,
    workingDir=TEXT, env=[closed(("name",), name=TEXT, value=TEXT)], resources=closed(limits=QUANTITIES, requests=QUANTITIES),
    volumeMounts=[closed(("name", "mountPath"), name=TEXT, mountPath=TEXT, subPath=TEXT, readOnly=TRUTH)])

VOLUME = closed(
    ("name",), name=TEXT, emptyDir=closed(medium={"", "Memory"}, sizeLimit=TEXT), configMap=closed(("name",), name=TEXT),
    persistentVolumeClaim=closed(("claimName",), claimName=TEXT, readOnly=TRUTH), hostPath=closed(("path",), path=TEXT))

POD = closed(
    ("spec",), metadata=closed(labels=dict, annotations=dict),
    spec=closed(("containers",), containers=[CONTAINER], initContainers=[CONTAINER], volumes=[VOLUME], nodeSelector=dict,
                serviceAccountName=TEXT,
                securityContext=closed(fsGroup=WHOLE, runAsUser=WHOLE, runAsGroup=WHOLE, runAsNonRoot=TRUTH), hostNetwork=TRUTH, terminationGracePeriodSeconds=WHOLE))

REPLICAS = closed(("replicas", "template"), replicas=WHOLE, restartPolicy={"Always", "Never", "OnFailure", "ExitCode"}, template=POD)

MPI_JOB = closed(
    ("apiVersion", "kind", "metadata", "spec"), apiVersion={"kubeflow.org/v2beta1"}, kind={"MPIJob"},
    metadata=closed(("name",), name=TEXT, namespace=TEXT, labels=dict, annotations=dict),
    spec=closed(
        ("mpiReplicaSpecs",), slotsPerWorker=WHOLE, mpiImplementation={"OpenMPI", "Intel", "MPICH"}, sshAuthMountPath=TEXT,
        launcherCreationPolicy={"AtStartup", "WaitForWorkersReady"}, runLauncherAsWorker=TRUTH,
        runPolicy=closed(cleanPodPolicy={"None", "Running", "All"}, backoffLimit=WHOLE, activeDeadlineSeconds=WHOLE,
                         ttlSecondsAfterFinished=WHOLE, suspend=TRUTH, managedBy=TEXT,
                         schedulingPolicy=closed(minAvailable=WHOLE, queue=TEXT, priorityClass=TEXT)),
        mpiReplicaSpecs=closed(("Launcher", "Worker"), Launcher=REPLICAS, Worker=REPLICAS)))


def shape_mistakes(value, shape, path):
    if isinstance(shape, set):
        return [] if value in shape else [f"{path}: {value!r} is none of {sorted(shape)}"]
    if isinstance(shape, list):
        if not isinstance(value, list):
            return [f"{path} is not a list"]
        return [told for i, item in enumerate(value) for told in shape_mistakes(item, shape[0], f"{path}[{i}]")]
    if isinstance(shape, type):
        good = isinstance(value, shape) and not (shape is int and isinstance(value, bool))
        return [] if good else [f"{path}: {value!r} is no {shape.__name__}"]
    if not isinstance(value, dict):
        return [f"{path} has no fields"]
    told = [f"{path}: there is no field '{name}'" for name in value if name not in shape["fields"]]
    told += [f"{path}: '{name}' is missing" for name in shape["required"] if name not in value]
    for name, part in value.items():
        if name in shape["fields"]:
            told += shape_mistakes(part, shape["fields"][name], f"{path}.{name}")
    return told


def mistakes(job):
    """All that is wrong, each with its path: fields, values, and mounts of volumes that the pod does not have."""
    told = shape_mistakes(job, MPI_JOB, "MPIJob")
    if told:
        return told
    for role, replicas in job["spec"]["mpiReplicaSpecs"].items():
        pod = replicas["template"]["spec"]
        volumes = {volume["name"] for volume in pod.get("volumes", [])}
        for container in pod["containers"]:
            told += [f"{role}: container {container['name']} mounts '{mount['name']}', which is no volume of the pod"
                     for mount in container.get("volumeMounts", []) if mount["name"] not in volumes]
    return told
