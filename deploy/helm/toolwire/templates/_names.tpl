{{- define "toolwire.name" -}}
{{- if contains "toolwire" .Release.Name }}{{ .Release.Name | trunc 53 | trimSuffix "-" }}{{ else }}{{ printf "%s-toolwire" .Release.Name | trunc 53 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "toolwire.selector" -}}
app.kubernetes.io/name: toolwire
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "toolwire.labels" -}}
{{ include "toolwire.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "toolwire.secret" -}}
{{ .Values.secret.name | default (include "toolwire.name" .) }}
{{- end }}

{{- define "toolwire.hasSeveral" -}}
{{- if or .Values.autoscaling.enabled (gt (int .Values.replicas) 1) }}yes{{ end }}
{{- end }}
