//! The resources that every API server serves, for when there is none to ask.

use metashard_api::resource::Resource;

/// Group, version, plural, kind, whether in namespaces, whether with a status.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    bool,
    bool,
);

#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("", "v1", "configmaps", "ConfigMap", true, false),
    ("", "v1", "endpoints", "Endpoints", true, false),
    ("", "v1", "events", "Event", true, false),
    ("", "v1", "limitranges", "LimitRange", true, false),
    ("", "v1", "namespaces", "Namespace", false, true),
    ("", "v1", "nodes", "Node", false, true),
    ("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", true, true),
    ("", "v1", "persistentvolumes", "PersistentVolume", false, true),
    ("", "v1", "pods", "Pod", true, true),
    ("", "v1", "podtemplates", "PodTemplate", true, false),
    ("", "v1", "replicationcontrollers", "ReplicationController", true, true),
    ("", "v1", "resourcequotas", "ResourceQuota", true, true),
    ("", "v1", "secrets", "Secret", true, false),
    ("", "v1", "serviceaccounts", "ServiceAccount", true, false),
    ("", "v1", "services", "Service", true, true),
    ("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", false, false),
    ("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", false, true),
    ("admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", false, false),
    ("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", false, false),
    ("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", false, true),
    ("apiregistration.k8s.io", "v1", "apiservices", "APIService", false, true),
    ("apps", "v1", "controllerrevisions", "ControllerRevision", true, false),
    ("apps", "v1", "daemonsets", "DaemonSet", true, true),
    ("apps", "v1", "deployments", "Deployment", true, true),
    ("apps", "v1", "replicasets", "ReplicaSet", true, true),
    ("apps", "v1", "statefulsets", "StatefulSet", true, true),
    ("autoscaling", "v1", "horizontalpodautoscalers", "HorizontalPodAutoscaler", true, true),
    ("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", true, true),
    ("batch", "v1", "cronjobs", "CronJob", true, true),
    ("batch", "v1", "jobs", "Job", true, true),
    ("certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest", false, true),
    ("coordination.k8s.io", "v1", "leases", "Lease", true, false),
    ("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", true, false),
    ("events.k8s.io", "v1", "events", "Event", true, false),
    ("flowcontrol.apiserver.k8s.io", "v1", "flowschemas", "FlowSchema", false, true),
    ("flowcontrol.apiserver.k8s.io", "v1", "prioritylevelconfigurations", "PriorityLevelConfiguration", false, true),
    ("networking.k8s.io", "v1", "ingressclasses", "IngressClass", false, false),
    ("networking.k8s.io", "v1", "ingresses", "Ingress", true, true),
    ("networking.k8s.io", "v1", "ipaddresses", "IPAddress", false, false),
    ("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", true, false),
    ("networking.k8s.io", "v1", "servicecidrs", "ServiceCIDR", false, true),
    ("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", false, false),
    ("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", true, true),
    ("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", false, false),
    ("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", false, false),
    ("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", true, false),
    ("rbac.authorization.k8s.io", "v1", "roles", "Role", true, false),
    ("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", false, false),
    ("storage.k8s.io", "v1", "csidrivers", "CSIDriver", false, false),
    ("storage.k8s.io", "v1", "csinodes", "CSINode", false, false),
    ("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity", true, false),
    ("storage.k8s.io", "v1", "storageclasses", "StorageClass", false, false),
    ("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", false, true),
];

/// All of them.
pub(crate) fn resources() -> impl Iterator<Item = Resource> {
    ROWS.iter().map(
        |&(group, version, plural, kind, namespaced, has_status)| Resource {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: plural.to_owned(),
            kind: kind.to_owned(),
            namespaced,
            has_status,
        },
    )
}
